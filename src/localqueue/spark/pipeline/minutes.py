"""Gold ``minutes``: what happened in a queue in one minute, and how it stood at the end of it.

Counts are of messages. ``attempts`` are leases that ended in the minute; their wait and run times
are in the sketches, and in the quantiles that are made of these, in seconds. ``busy`` is how long
these leases have run, the whole of it in the minute in which they ended, and ``workers`` how many
had a lease begin or end: ``busy / (60 * workers)`` is how far they were used, which over an hour
says more than over one minute. ``ready`` to ``dead`` are levels, see ``backlog``; subscribers'
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

SUMS = ("events", *KINDS, "attempts", "failures", "retries", "died", "lives", "slo_met", "slo_missed")
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
    from pyspark.sql import functions as f

    from localqueue.spark.pipeline import backlog, lives, quantiles, slo, spans, worker_counts

    ended, limit = lives.ends_a_lease(), slo.limit_of("queue", limits)
    failed = ended & lives.failed()
    met, missed = slo.met_and_missed(lives.ends_a_life(), ended, limit)
    counted = {
        **{kind: f.col("kind") == kind for kind in KINDS},
        "attempts": ended,
        "failures": failed,
        "retries": failed & lives.waits_again(),
        "died": f.col("to_state") == "dead",
        "lives": lives.ends_a_life(),
    }
    minute = spans.start_of_span("at", spans.MINUTE).alias("minute")
    summary = (
        backlog.with_counted(events)
        .groupBy("store", "queue", minute)
        .agg(
            f.count("*").alias("events"),
            *(_messages(which).alias(name) for name, which in counted.items()),
            met.alias("slo_met"),
            missed.alias("slo_missed"),
            f.max(limit).alias("slo_limit"),
            f.coalesce(f.sum(f.when(ended, f.col("ran"))), f.lit(0.0)).alias("busy"),
            quantiles.sketch_of(f.when(ended, f.col("waited"))).alias("wait_sketch"),
            quantiles.sketch_of(f.when(ended, f.col("ran"))).alias("run_sketch"),
            worker_counts.sketch_of("worker").alias("worker_sketch"),
            f.min("seq").alias("first_seq"),
            f.max("seq").alias("last_seq"),
            *backlog.moves(),
        )
    )
    return _rows(summary)


def _merge(rows: DataFrame) -> DataFrame:
    from localqueue.spark.pipeline import backlog, rollups

    merged = (
        # All minutes of a queue in one place, once for everything that follows.
        rows.repartition("store", "queue")
        .groupBy("store", "queue", "minute")
        .agg(*rollups.added_up(), *backlog.moves_of_both())
    )
    return _rows(rollups.with_quantiles(backlog.with_levels(merged)))


def _messages(which: Column) -> Column:
    from pyspark.sql import functions as f

    return f.sum(f.when(which, f.col("n")).otherwise(0))


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
