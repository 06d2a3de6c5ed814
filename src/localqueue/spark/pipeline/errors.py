"""Gold ``errors``: what went wrong in a queue in one hour, one row for what is alike.

Errors are alike by their fingerprint. The text and the message are those of the last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from localqueue.spark.pipeline.definition import MOMENT, Definition, columns
from localqueue.spark.pipeline.steps import MergeStep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ERRORS = Definition(
    name="errors",
    description="Errors of each hour and queue that are alike: how many, since when, and one.",
    schema=columns(
        ("store", pa.string()),
        ("queue", pa.string()),
        ("hour", MOMENT),
        ("fingerprint", pa.string()),
        ("error_type", pa.string()),
        ("error_text", pa.string()),
        ("count", pa.int64()),
        # How many of them made a dead letter.
        ("died", pa.int64()),
        ("first_at", MOMENT),
        ("last_at", MOMENT),
        ("message_id", pa.string()),
        ("worker", pa.string()),
        ("first_seq", pa.int64()),
        ("last_seq", pa.int64()),
    ),
    statistics=("store", "queue", "hour"),
    moment="hour",
)

_KEYS = ("store", "queue", "hour", "fingerprint")
_LAST = ("error_type", "error_text", "message_id", "worker")
"""What is told of the last one."""


def _summarize(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    from localqueue.spark.pipeline.spans import HOUR, start_of_span

    died = f.when(f.col("to_state") == "dead", f.col("n")).otherwise(0)
    one_each = events.where("fingerprint IS NOT NULL").select(
        "store",
        "queue",
        start_of_span("at", HOUR).alias("hour"),
        "fingerprint",
        *_LAST,
        f.col("n").alias("count"),
        died.alias("died"),
        f.col("at").alias("first_at"),
        f.col("at").alias("last_at"),
        f.col("seq").alias("first_seq"),
        f.col("seq").alias("last_seq"),
    )
    return _merge(one_each)


def _merge(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    merged = rows.groupBy(*_KEYS).agg(
        f.max_by(f.struct(*_LAST), "last_seq").alias("last"),
        f.sum("count").alias("count"),
        f.sum("died").alias("died"),
        f.min("first_at").alias("first_at"),
        f.max("last_at").alias("last_at"),
        f.min("first_seq").alias("first_seq"),
        f.max("last_seq").alias("last_seq"),
    )
    named = {name: f.col(f"last.{name}").alias(name) for name in _LAST}
    return merged.select(*(named.get(name, f.col(name)) for name in ERRORS.schema.names))


ERRORS_STEP = MergeStep(ERRORS, 3600, _summarize, _merge)
