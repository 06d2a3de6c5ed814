"""Service levels: how many messages were taken up in time, and how fast the others use up a budget.

A queue has a limit in seconds. A life that ended met it when its last lease began within the limit
after the message was due; it missed it when that took longer, and when it ended without ever being
worked on, because it expired or there was no room. One that somebody cancelled or purged while it
waited is neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from localqueue.errors import ConfigurationError
from localqueue.spark.pipeline.rates import MISSED_RATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TAKEN_BACK = ("cancelled", "purged")
OBJECTIVE = 0.99
"""The share of lives that should meet the limit, unless another one is given."""


def in_time(events: pa.RecordBatch, limits: Mapping[str, float]) -> pa.Array:
    """Of events that end a life: whether the limit was met; null where it is neither."""
    if not limits:
        return pa.nulls(events.num_rows, pa.bool_())
    known = pc.index_in(events["queue"], value_set=pa.array(list(limits), pa.string()))
    limit = pa.array(list(limits.values()), pa.float64()).take(known)
    leased = pc.fill_null(pc.equal(events["from_state"], "inflight"), False)
    in_limit = pc.fill_null(pc.less_equal(events["waited"], limit), False)
    taken_back = pc.is_in(events["kind"], value_set=pa.array(TAKEN_BACK))
    judged = pc.and_(pc.is_valid(limit), pc.or_(leased, pc.invert(taken_back)))
    return pc.if_else(judged, pc.and_(leased, in_limit), None)


def burn(missed: Any, objective: float) -> Any:
    """How fast this share, or these, use up what may be missed: 1.0 uses it up exactly."""
    return missed / (1 - objective)


def with_burn_rate(rows: DataFrame, objective: float = OBJECTIVE) -> DataFrame:
    """Rows of minutes, hours or days with ``burn_rate``: 1.0 uses up exactly what may be missed.

    ``objective`` is the share of lives that should meet the limit. Null where none was judged.
    """
    if not 0 < objective < 1:
        raise ConfigurationError(f"the objective is a share between 0 and 1, not {objective!r}")
    # What is missed is missed however long the span is.
    missed = MISSED_RATE.of_rows(rows, seconds=0)
    return rows.withColumn("burn_rate", burn(missed, objective))
