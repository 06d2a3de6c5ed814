"""``StuckAlerts``: a query that follows the journal, and puts an alert for each stuck message."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localqueue.checks import check_queue_name
from localqueue.clock import SYSTEM_CLOCK, StoreTime
from localqueue.errors import ConfigurationError
from localqueue.failpoints import reach
from localqueue.spark.options import Options
from localqueue.spark.pipeline.alerts.journal_rows import (
    JOURNAL_COLUMNS,
    events_by_bucket,
    there_now,
    without_moves,
)
from localqueue.spark.pipeline.alerts.limits import Limits
from localqueue.spark.pipeline.alerts.processor import ALERT, KEY, Processor
from localqueue.spark.pipeline.awaiting import ends_within
from localqueue.spark.pipeline.checkpoint import newest_batch, next_start
from localqueue.spark.pipeline.checks import check_name
from localqueue.spark.pipeline.events import STORE_DIGITS
from localqueue.spark.pipeline.failures import raise_failure_of
from localqueue.spark.read.offsets import SHARD
from localqueue.spark.read.scan import open_source
from localqueue.spark.read.schema import spark_schema
from localqueue.spark.sessions.registration import is_connect, register
from localqueue.stores.open import absolute_url, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

EVENTS_PER_BATCH = 100_000
LOOK_EVERY = 0.05
REMEMBERED = 30 * 86_400.0
"""Seconds for which the key of an alert stays taken: as long as a journal is kept for a reader."""

_STATE = "spark.sql.streaming.stateStore"
_SETTINGS = {
    # The only one that keeps maps and timers.
    f"{_STATE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A batch writes what it changed, and not all that there is.
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
}


@dataclass(frozen=True, slots=True)
class AlertBatch:
    """A batch whose alerts are in the queue."""

    batch: int
    alerts: int
    """How many were put; those that were there already are counted too."""


class StuckAlerts:
    """Tells of messages that wait, or run, for longer than they may.

    ``waiting`` and ``running`` are seconds by queue. For each stage of a message that lasts longer
    an alert is put into the queue ``to`` of the same store, once: while the message is stuck, or
    afterwards when it was stuck while nobody looked. An alert is a JSON object with ``queue``,
    ``message_id``, ``stage`` (``waiting`` or ``running``), ``attempt``, ``worker``, ``since``,
    ``limit``, ``seconds`` and ``ended``.

    ``checkpoint`` is a folder of the query's own: what it knows is there, and it goes on there
    after any end. Without it, it begins with the messages that are there; none is told of twice in
    30 days. ``name`` is for the consumer group ``alerts:<name>``, which keeps the journal for it;
    a second one of a name is refused while the first one runs. Spark Connect is refused.
    """

    def __init__(
        self,
        store_url: str,
        to: str,
        *,
        checkpoint: str | Path,
        waiting: Mapping[str, float] | None = None,
        running: Mapping[str, float] | None = None,
        name: str = "default",
        spark: SparkSession | None = None,
    ) -> None:
        self.limits = Limits.checked(waiting, running)
        self.to = check_queue_name(to)
        if to in self.limits.queues:
            raise ConfigurationError(
                f"alerts about {to!r} would be put into {to!r}; name another queue for them"
            )
        self._given = {"url": absolute_url(store_url), "queue": ",".join(self.limits.queues)}
        self._stream = {
            **self._given,
            "content": "journal",
            "columns": JOURNAL_COLUMNS,
            "where": without_moves(),
            "consumerGroup": f"alerts:{check_name('a watch', name)}",
            "maxRowsPerTrigger": str(EVENTS_PER_BATCH),
        }
        self.options = Options.parse(self._stream)
        self._checkpoint = Path(checkpoint).absolute()
        self._spark = spark
        self._query: StreamingQuery | None = None
        self._stopped = threading.Event()
        self._failure: BaseException | None = None

    def run(
        self,
        *,
        once: bool = False,
        every: float = 5.0,
        on_batch: Callable[[AlertBatch], object] | None = None,
    ) -> int:
        """Look every so many seconds, until ``stop``; how many alerts were put.

        With ``once`` it ends when everything that has happened so far has been looked at. What
        fails leaves as an error of ``localqueue.errors``, and the next run goes on.
        """
        put = 0

        def count(done: AlertBatch) -> None:
            nonlocal put
            put += done.alerts
            if on_batch is not None:
                on_batch(done)

        self._failure = None
        begun = newest_batch(self._checkpoint)
        query = self._start(0.0 if once else every, count)
        self._query = query
        try:
            if self._stopped.is_set():
                query.stop()
            if once:
                _await_quiet(query, begun)
            ends_within(query)
        except KeyboardInterrupt:
            query.stop()
            raise
        except Exception as error:
            query.stop()
            raise_failure_of(self._failure or error)
        finally:
            self._query = None
            self._stopped.clear()
        return put

    def stop(self) -> None:
        """End a run of another thread. What it was at is done again by the next one."""
        self._stopped.set()
        query = self._query
        if query is not None:
            query.stop()

    # --- the query --------------------------------------------------------------------------------
    def _start(self, every: float, done: Callable[[AlertBatch], object]) -> StreamingQuery:
        spark = self._session()
        store_id, position = self._position()
        start = {"startingOffsets": json.dumps({"store": store_id, SHARD: position})}
        journal = spark.readStream.format("localqueue").options(**self._stream, **start).load()
        there = there_now(spark, self._given, store_id[:STORE_DIGITS])
        alerts = (
            events_by_bucket(journal, Options.parse(self._given))
            .groupBy(*KEY)
            .transformWithState(
                Processor(self.limits, self._ahead_ms()),
                ALERT,
                outputMode="Append",
                timeMode="ProcessingTime",
                initialState=there.groupBy(*KEY),
            )
        )

        def batch(frame: DataFrame, number: int) -> None:
            try:
                reach("alerts.before-put")
                n = self._put(frame)
                reach("alerts.after-put")
                done(AlertBatch(number, n))
            except BaseException as error:
                # Spark keeps only its text.
                self._failure = error
                raise

        written = alerts.writeStream.foreachBatch(batch).outputMode("append")
        written = written.option("checkpointLocation", str(self._checkpoint))
        return written.trigger(processingTime=f"{every} seconds").start()

    def _put(self, alerts: DataFrame) -> int:
        """Each row by a key of its own: putting a batch again adds nothing."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        observed = Observation()
        key = f.concat_ws(":", f.lit("stuck"), "message_id", "stage", "attempt", "queue")
        rows = alerts.select(f.to_json(f.struct("*")).alias("value"), key.alias("dedupe_key"))
        rows = rows.observe(observed, f.count(f.lit(1)).alias("alerts"))
        to = {"url": self._given["url"], "queue": self.to, "dedupeWindow": str(REMEMBERED)}
        rows.write.format("localqueue").options(**to).mode("append").save()
        return int(observed.get["alerts"])

    # --- where to begin ---------------------------------------------------------------------------
    def _position(self) -> tuple[str, int]:
        """The store, and how far its journal goes. Without a checkpoint the group goes there."""
        schema = spark_schema(self.options)
        assert not isinstance(schema, str)
        with open_source(self.options, schema) as source:
            store_id, end = source.store_id, source.journal_end()
            if next_start(self._checkpoint) is None:
                store = open_store(self.options.url)
                try:
                    now = StoreTime(SYSTEM_CLOCK, store.open_clock(SYSTEM_CLOCK)).now
                    group = self.options.consumer_group or ""
                    position = source.position(end)
                    store.register_reader(group, position=position, missing_ok=True, now=now)
                finally:
                    store.close()
        return store_id, end

    def _ahead_ms(self) -> int:
        """How far store time is ahead of the wall clock, which Spark's timers go by."""
        store = open_store(self.options.url)
        try:
            drift = StoreTime(SYSTEM_CLOCK, store.open_clock(SYSTEM_CLOCK)).drift()
        finally:
            store.close()
        return -round(drift * 1000)

    def _session(self) -> SparkSession:
        """A session of its own beside the given one: settings of the state are for this query."""
        if self._spark is None:
            from localqueue.spark.sessions.spark_session import session

            self._spark = session()
        if is_connect(self._spark):
            raise ConfigurationError(
                "alerts are put by the process that has the Spark session, which Spark Connect"
                " keeps elsewhere; use a master such as local[*] or spark://host:7077"
            )
        own = self._spark.newSession()
        register(own)
        for name, value in _SETTINGS.items():
            own.conf.set(name, value)
        return own


def _await_quiet(query: StreamingQuery, begun: int) -> None:
    """Stop the query after a new batch without events; those that were begun before are old ones.

    Spark itself never ends a query that has timers.
    """
    while query.isActive:
        progress: Any = query.lastProgress
        if progress is not None and progress["batchId"] > begun and not progress["numInputRows"]:
            query.stop()
            return
        time.sleep(LOOK_EVERY)
