"""Service levels: how many messages were taken up in time, and how fast the others use up a budget.

A queue has a limit in seconds. A life that ended met it when its last lease began within the limit
after the message was due; it missed it when that took longer, and when it ended without ever being
worked on, because it expired or there was no room. One that somebody cancelled or purged while it
waited is neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from localqueue.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TAKEN_BACK = ("cancelled", "purged")


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
