"""Gold ``minutes``: what happened in a queue in one minute, and how it stood at the end of it.

Counts are of messages. ``attempts`` are leases that ended in the minute; their wait and run times
are in the sketches, and in the quantiles that are made of these, in seconds. ``busy`` is how long
these leases have run, the whole of it in the minute in which they ended, and ``workers`` how many
had them: ``busy / (60 * workers)`` is how far they were used, which over an hour says more than
over one minute. ``ready`` to ``dead`` are levels, see ``backlog``; subscribers'
unread publications are not among them. ``slo`` says what was met and missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from localqueue.spark.pipeline.definition import MOMENT, Definition, columns
from localqueue.spark.pipeline.steps import MergeStep

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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
QUANTILES = tuple(f"{what}_{rank}" for what in ("wait", "run") for rank in ("p50", "p95", "p99"))

MINUTES = Definition(
    name="minutes",
    description="Each minute of each queue: throughput, times, failures, levels, service levels.",
    schema=columns(
        ("store", pa.string()),
        ("queue", pa.string()),
        ("minute", MOMENT),
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
        # The minute again; of a queue's newest row, far in the future: its levels still hold.
        ("until", MOMENT),
    ),
    statistics=("store", "queue", "minute", "until"),
    # Retention goes by it too, so that the newest row of a queue stays, however old.
    moment="until",
)


def minutes_step(limits: Mapping[str, float]) -> MergeStep:
    """``limits`` are how long messages may wait, in seconds by queue."""
    return MergeStep(MINUTES, 60, partial(_summarize, limits=dict(limits)), _merge)


def _summarize(events: DataFrame, *, limits: Mapping[str, float]) -> DataFrame:
    """Several rows for a minute, which ``_merge`` adds up.

    Counting by shape takes a fraction of what counting each thing by itself would. Sketches are
    made apart, of the few events that they need: beside them Spark counts much more slowly.
    """
    return _rows(_counts(events, limits)).unionByName(_rows(_times(events)))


def _counts(events: DataFrame, limits: Mapping[str, float]) -> DataFrame:
    """What has the same shape does the same to every count."""
    from pyspark.sql import functions as f

    from localqueue.spark.pipeline import backlog, lives, slo

    limit = slo.limit_of("queue", limits)
    shaped = backlog.with_counted(events).groupBy(
        *_keys(),
        *("kind", "from_state", "to_state"),
        f.col("error_type").isNotNull().alias("erred"),
        slo.in_time(limit).alias("in_time"),
        backlog.before_it_was_counted().alias("before"),
    )
    counts = shaped.agg(
        f.count("*").alias("events"),
        f.sum("n").alias("n"),
        f.min("seq").alias("first_seq"),
        f.max("seq").alias("last_seq"),
        *backlog.what_was_counted(),
    )
    ended, ends_a_life = lives.ends_a_lease(), lives.ends_a_life()
    failed = ended & lives.failed()
    what = {
        **{kind: f.col("kind") == kind for kind in KINDS},
        "attempts": ended,
        "failures": failed,
        "retries": failed & lives.waits_again(),
        "died": f.col("to_state") == "dead",
        "lives": ends_a_life,
        "slo_met": ends_a_life & f.col("in_time"),
        "slo_missed": ends_a_life & ~f.col("in_time"),
    }
    numbers = {name: f.when(which, f.col("n")).otherwise(0) for name, which in what.items()}
    return counts.withColumns(numbers | backlog.moves() | {"slo_limit": limit})


def _times(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    from localqueue.spark.pipeline import lives, quantiles, worker_counts

    ended = events.where(lives.ends_a_lease())
    return ended.groupBy(*_keys()).agg(
        f.sum("ran").alias("busy"),
        quantiles.sketch_of("waited").alias("wait_sketch"),
        quantiles.sketch_of("ran").alias("run_sketch"),
        worker_counts.sketch_of("worker").alias("worker_sketch"),
    )


def _keys() -> tuple[Column, ...]:
    from pyspark.sql import functions as f

    from localqueue.spark.pipeline.spans import MINUTE, start_of_span

    return f.col("store"), f.col("queue"), start_of_span("at", MINUTE).alias("minute")


def _merge(rows: DataFrame) -> DataFrame:
    from localqueue.spark.pipeline import backlog, rollups

    merged = (
        # All minutes of a queue in one place, once for everything that follows.
        rows.repartition("store", "queue")
        .groupBy("store", "queue", "minute")
        .agg(*rollups.added_up(), *backlog.moves_of_both())
    )
    return _rows(rollups.with_quantiles(backlog.with_levels(merged)))


def _rows(frame: DataFrame) -> DataFrame:
    """With the columns of the table; null where the frame has none."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    return frame.select(
        *(
            f.col(field.name)
            if field.name in frame.columns
            else f.lit(None).cast(field.dataType).alias(field.name)
            for field in from_arrow_schema(MINUTES.schema)
        )
    )
