"""The rows of the query: events by bucket, and before the first of them what is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from localqueue.spark.options import Options
from localqueue.spark.pipeline.alerts.due_times import WithDueTimes
from localqueue.spark.pipeline.alerts.processor import BUCKETS, EVENT, KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

JOURNAL_COLUMNS = "seq,at,queue,message_id,kind,from_state,to_state,attempt,worker,leased_at,waited"
NOTHING_MOVES = (
    "configured", "published", "extended", "cancel_asked", "subscribed", "unsubscribed",
    "counted", "pruned",
)  # fmt: skip
"""Kinds of events after which every message is where it was, or was dead before."""


def without_moves() -> str:
    """The condition that leaves these events in the store."""
    return f"kind NOT IN ({', '.join(map(repr, NOTHING_MOVES))})"


def events_by_bucket(journal: DataFrame, options: Options) -> DataFrame:
    """Each event once; a purge, which names no message, once for each bucket."""
    from pyspark.sql import functions as f

    of_messages = f.col("message_id").isNotNull()
    every = f.sequence(f.lit(0), f.lit(BUCKETS - 1))
    places = f.when(of_messages, f.array(_bucket())).otherwise(every)
    rows = journal.where(of_messages | (f.col("kind") == "purged")).select(
        "queue",
        f.explode(places).alias("bucket"),
        "seq",
        f.unix_micros("at").alias("at"),
        "message_id",
        "from_state",
        "to_state",
        "attempt",
        "worker",
        f.unix_micros("leased_at").alias("leased_at"),
        "waited",
        f.lit(None).cast("long").alias("due_at"),
    )
    return rows.mapInArrow(WithDueTimes(options), f"queue string, bucket int, {EVENT}")


def there_now(spark: SparkSession, given: Mapping[str, str], store_digits: str) -> DataFrame:
    """The messages that live, one row for each bucket of a queue.

    A message that was brought along from another file is left out until its next event: the
    journal knows it by another id.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.window import Window

    def read(content: str, columns: str, where: str) -> DataFrame:
        options = {**given, "content": content, "columns": columns, "where": where}
        return spark.read.format("localqueue").options(**options).load()

    columns = "id,queue,state,ordering_key,attempts,available_at"
    alive = read("messages", columns, "state != 'dead'").where(f.col("id").startswith(store_digits))
    leases = (
        read("journal", "queue,message_id,at", "kind = 'leased'")
        .groupBy("queue", f.col("message_id").alias("id"))
        .agg(f.max("at").alias("leased_at"))
    )
    runs = f.col("state") == "inflight"
    # Of a key's messages only the first is not held.
    first = f.min("id").over(Window.partitionBy("queue", "ordering_key"))
    held = f.col("ordering_key").isNotNull() & (f.col("id") != first)
    # A lease whose event is gone has been running for long; it is watched from now on.
    leased_at = f.coalesce("leased_at", f.current_timestamp())
    since = f.when(runs, leased_at).when(~held, f.col("available_at"))
    return (
        alive.join(leases, ["queue", "id"], "left")
        .select(
            "queue",
            f.col("id").alias("message_id"),
            f.when(runs, "inflight").when(held, "held").otherwise("ready").alias("state"),
            f.unix_micros(since).alias("since"),
            (f.col("attempts") + f.when(runs, 0).otherwise(1)).alias("attempt"),
        )
        .withColumn("bucket", _bucket())
        .groupBy(*KEY)
        .agg(f.collect_list(f.struct("message_id", "state", "since", "attempt")).alias("messages"))
    )


def _bucket() -> Column:
    from pyspark.sql import functions as f

    return f.pmod(f.hash("message_id"), f.lit(BUCKETS))
