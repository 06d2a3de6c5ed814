"""Gold ``minutes``: what happened in a queue in one minute, and how it stood at the end of it.

Counts are of messages. ``attempts`` are leases that ended in the minute; their wait and run times
are in the sketches, and in the quantiles that are made of these, in seconds. ``busy`` is how long
these leases have run, the whole of it in the minute in which they ended, and ``workers`` how many
had them, those without a name taken for one. How far they were used, and what else is a rate of
these counts, ``rates`` tells; over an hour that says more than over one minute. ``ready`` to
``dead`` are levels, see ``backlog``; subscribers' unread publications are not among them. What is
met and missed, ``slo`` says.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from localqueue.spark.pipeline.definition import MOMENT, Definition, columns
from localqueue.spark.pipeline.steps import MergeStep

UNNAMED = ""
"""Stands for all workers without a name; a name is never empty."""
KINDS = (
    "enqueued",
    "published",
    "leased",
    "acked",
    "released",
    "lease_expired",
    "dead_lettered",
    "quarantined",
    "requeued",
    "expired",
    "cancelled",
    "dropped",
    "purged",
    "pruned",
)
"""Kinds of events that have a column of their own."""

SUMS = (
    "events",
    *KINDS,
    "attempts",
    "failures",
    "retries",
    "died",
    "lives",
    "slo_met",
    "slo_missed",
)
"""Columns that are added up when rows are merged."""

LEVELS = ("ready", "delayed", "held", "inflight", "dead")
RANKS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
QUANTILES = tuple(f"{what}_{rank}" for what in ("wait", "run") for rank in RANKS)

MINUTES = Definition(
    name="minutes",
    description="Each minute of each queue: throughput, times, failures, levels, service levels.",
    schema=columns(
        ("store", pa.string()),
        ("queue", pa.string()),
        ("minute", MOMENT),
        # The minute again; of a queue's newest row, far in the future: its levels still hold.
        ("until", MOMENT),
        *((name, pa.int64()) for name in SUMS),
        ("busy", pa.float64()),
        ("workers", pa.int64()),
        *((name, pa.float64()) for name in QUANTILES),
        ("slo_limit", pa.float64()),
        # At the end of the minute. What waits: ready, delayed and held.
        ("backlog", pa.int64()),
        *((state, pa.int64()) for state in LEVELS),
        *((f"{state}_net", pa.int64()) for state in LEVELS),
        ("wait_sketch", pa.binary()),
        ("run_sketch", pa.binary()),
        ("worker_sketch", pa.binary()),
        ("first_seq", pa.int64()),
        ("last_seq", pa.int64()),
    ),
    statistics=("store", "queue", "minute", "until"),
    # Retention goes by it too, so that the newest row of a queue stays, however old.
    moment="until",
)


def minutes_step(
    limits: Mapping[str, float], trimmed: frozenset[tuple[str, str]] = frozenset()
) -> MergeStep:
    """``limits`` are how long messages may wait, in seconds by queue.

    ``trimmed`` are the stores and queues whose journal has lost its beginning.
    """
    from localqueue.spark.pipeline.merged_minutes import MergedMinutes
    from localqueue.spark.pipeline.minute_shapes import MinuteShapes

    known = dict(limits)
    return MergeStep(MINUTES, "minute", MinuteShapes(known), MergedMinutes(known, trimmed))
