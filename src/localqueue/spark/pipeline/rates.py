"""Rates: what the counts of a span tell about it. Each formula is here and nowhere else.

Arrays of numpy and columns of Spark are added and multiplied in the same words, so the report and
``pipeline sql`` reckon with the same formulas. Tables do not have them: rates cannot be added up,
and an hour's is not the average of its minutes'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Numbers = npt.NDArray[np.float64]

SECONDS = "seconds"
"""How long the span is: known beside the columns of ``minutes``."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A part of a whole: at most 1, and nothing where the whole is 0."""

    part: str
    """A column of ``minutes``."""
    whole: Callable[[Mapping[str, Any]], Any]
    """Told by such columns, and by ``seconds``."""

    def of_spans(self, numbers: Mapping[str, Numbers]) -> Numbers:
        """Of each span by itself; NaN is nothing."""
        return shares(numbers[self.part], self.whole(numbers))

    def of_all(self, numbers: Mapping[str, Numbers]) -> float | None:
        """Of all spans as one, none of which counts for more than its whole."""
        whole = self.whole(numbers)
        found = float(whole.sum())
        return float(np.minimum(numbers[self.part], whole).sum()) / found if found else None

    def of_rows(self, rows: DataFrame, seconds: int) -> Column:
        """Of each row of minutes, hours or days, which are so long; null is nothing."""
        from pyspark.sql import functions as f

        columns = {name: f.col(name) for name in rows.columns} | {SECONDS: f.lit(seconds)}
        share = f.try_divide(columns[self.part], self.whole(columns))
        # Not least(): it takes null for no argument, and would answer 1.
        return f.when(share > 1, 1.0).otherwise(share)


FAILURE_RATE = Rate("failures", itemgetter("attempts"))
RETRY_RATE = Rate("retries", itemgetter("attempts"))
DEAD_LETTER_RATE = Rate("died", itemgetter("lives"))
# Above 1 when leases end that began in an earlier span, or were ahead of their turn.
UTILISATION = Rate("busy", lambda of: of["workers"] * of[SECONDS])
MISSED_RATE = Rate("slo_missed", lambda of: of["slo_met"] + of["slo_missed"])

SHOWN = {
    "failure_rate": FAILURE_RATE,
    "retry_rate": RETRY_RATE,
    "dead_letter_rate": DEAD_LETTER_RATE,
    "utilisation": UTILISATION,
}
"""What ``with_rates`` adds, by column. What is missed is shown as ``burn_rate``, see ``slo``."""


def with_rates(rows: DataFrame, seconds: int) -> DataFrame:
    """Rows of minutes, hours or days, which are so many seconds long, with their rates."""
    return rows.withColumns({name: rate.of_rows(rows, seconds) for name, rate in SHOWN.items()})


def shares(part: Numbers, whole: Numbers) -> Numbers:
    """Part by whole, at most 1; NaN where the whole is nothing."""
    found = np.full(len(part), np.nan)
    np.divide(part, whole, out=found, where=whole > 0)
    return np.asarray(np.minimum(found, 1.0), np.float64)
