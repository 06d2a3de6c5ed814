"""Gold ``minutes``: what happened in a queue in one minute, and how it stood at the end of it.

Counts are of messages. ``attempts`` are leases that ended in the minute; their wait and run times
are in the sketches, and in the quantiles that are made of these, in seconds. ``busy`` is how long
these leases have run, the whole of it in the minute in which they ended, and ``workers`` how many
had them: ``busy / (60 * workers)`` is how far they were used, which over an hour says more than
over one minute. ``ready`` to ``dead`` are levels, see ``backlog``; subscribers' unread publications
are not among them. What is met and missed, ``slo`` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from localqueue.spark.pipeline.definition import MOMENT, Definition, columns
from localqueue.spark.pipeline.steps import MergeStep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

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
        # The minute again; of a queue's newest row, far in the future: its levels still hold.
        # Here in front, because the log keeps the bounds of the first 32 columns only.
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


def minutes_step(limits: Mapping[str, float]) -> MergeStep:
    """``limits`` are how long messages may wait, in seconds by queue."""
    return MergeStep(MINUTES, 60, partial(_summarize, limits=dict(limits)), _merge)


def _summarize(events: DataFrame, *, limits: Mapping[str, float]) -> DataFrame:
    """Several rows for a minute, one for each shape; ``_merge`` adds them up."""
    from pyspark.sql import functions as f

    from localqueue.spark.pipeline import backlog, quantiles, shapes, slo, spans, worker_counts

    ended = (f.col("from_state") == "inflight") & ~f.col("to_state").eqNullSafe("inflight")
    found = events.groupBy(
        *("store", "queue", spans.start_of_span("at", spans.MINUTE).alias("minute")),
        *("kind", "from_state", "to_state"),
        f.col("error_type").isNotNull().alias("erred"),
        slo.in_time(slo.limit_of("queue", limits)).alias("in_time"),
        backlog.in_counts(events).alias("in_counts"),
    ).agg(
        f.count("*").alias("events"),
        f.sum("n").alias("n"),
        f.min("seq").alias("first_seq"),
        f.max("seq").alias("last_seq"),
        backlog.counts_told().alias("told"),
        f.sum(f.when(ended, f.col("ran"))).alias("busy"),
        quantiles.sketch_of(f.when(ended, f.col("waited"))).alias("wait_sketch"),
        quantiles.sketch_of(f.when(ended, f.col("ran"))).alias("run_sketch"),
        worker_counts.sketch_of(f.when(ended, f.col("worker"))).alias("worker_sketch"),
    )
    return found.mapInArrow(shapes.RowsOfShapes(limits), _spark_schema())


def _merge(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    from localqueue.spark.pipeline import merged_minutes, quantiles, worker_counts

    merged = (
        # All minutes of a queue come to one task.
        rows.repartition("store", "queue")
        .groupBy("store", "queue", "minute")
        .agg(
            quantiles.merged("wait_sketch").alias("wait_sketch"),
            quantiles.merged("run_sketch").alias("run_sketch"),
            worker_counts.merged("worker_sketch").alias("worker_sketch"),
            f.collect_list(f.struct(*merged_minutes.ADDED)).alias("parts"),
        )
    )
    told = quantiles.of("wait_sketch", "wait") | quantiles.of("run_sketch", "run")
    told["workers"] = worker_counts.count_of("worker_sketch")
    return merged.withColumns(told).mapInArrow(merged_minutes.merged_minutes, _spark_schema())


def _spark_schema() -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(MINUTES.schema)
