"""Service levels: how many messages were taken up in time, and how fast the others use up a budget.

A queue has a limit in seconds. A life that ended met it when its last lease began within the limit
after the message was due; it missed it when that took longer, and when it ended without ever being
worked on, because it expired or there was no room. One that somebody cancelled or purged while it
waited is neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING

from localqueue.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TAKEN_BACK = ("cancelled", "purged")


def checked_limits(limits: Mapping[str, float]) -> dict[str, float]:
    """The limits by queue; ConfigurationError for one that is no time to wait."""
    for queue, seconds in limits.items():
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
            raise ConfigurationError(
                f"slo: the limit of {queue!r} is {seconds!r}; it is how many seconds a message may"
                " wait, such as 30.0"
            )
    return {queue: float(seconds) for queue, seconds in limits.items()}


def limit_of(queue: str, limits: Mapping[str, float]) -> Column:
    """The limit of the queue that this column names; null when it has none."""
    from pyspark.sql import functions as f

    if not limits:
        return f.lit(None).cast("double")
    pairs = chain.from_iterable(limits.items())
    return f.create_map(*(f.lit(each) for each in pairs))[f.col(queue)]


def in_time(limit: Column) -> Column:
    """Of an event that ends a life: whether the limit was met; null where it is neither."""
    from pyspark.sql import functions as f

    leased = f.col("from_state").eqNullSafe("inflight")
    waited_in_time = f.coalesce(f.col("waited") <= limit, f.lit(False))
    judged = leased | ~f.col("kind").isin(*TAKEN_BACK)
    return f.when(limit.isNotNull() & judged, leased & waited_in_time)


def with_burn_rate(rows: DataFrame, objective: float = 0.99) -> DataFrame:
    """Rows of minutes, hours or days with ``burn_rate``: 1.0 uses up exactly what may be missed.

    ``objective`` is the share of lives that should meet the limit. Null where none was judged.
    """
    from pyspark.sql import functions as f

    if not 0 < objective < 1:
        raise ConfigurationError(f"the objective is a share between 0 and 1, not {objective!r}")
    judged = f.col("slo_met") + f.col("slo_missed")
    share = f.when(judged > 0, f.col("slo_missed") / judged)
    return rows.withColumn("burn_rate", share / (1 - objective))
