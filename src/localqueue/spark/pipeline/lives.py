"""What an event ends: a lease, or a life. As silver ``attempts`` and ``messages`` have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column

WAITING = ("ready", "delayed", "held")
_FAILURES = ("lease_expired", "dead_lettered", "quarantined")


def ends_a_lease() -> Column:
    return (f.col("from_state") == "inflight") & ~f.col("to_state").eqNullSafe("inflight")


def failed() -> Column:
    """Whether a lease that ended so is a failure: with an error, with its time, or for good.

    ``erred`` is whether there is an error.
    """
    return f.col("erred") | f.col("kind").isin(*_FAILURES)


def waits_again() -> Column:
    return f.col("to_state").isin(*WAITING)


def ends_a_life() -> Column:
    """Gone or dead now and alive before; or never alive, because there was no room."""
    left, entered, kind = f.col("from_state"), f.col("to_state"), f.col("kind")
    died = entered.eqNullSafe("dead")
    ended = left.isin(*WAITING, "inflight") & (died | entered.isNull())
    never_lived = left.isNull() & ((kind == "dropped") | ((kind == "enqueued") & died))
    return f.coalesce(ended | never_lived, f.lit(False))
