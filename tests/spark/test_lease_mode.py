"""Competing consumption with real queries: what their sinks have, and what stays in the queue."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from localqueue import PersistentQueue
from localqueue.workers import Worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Sink = Callable[["DataFrame", int], None]


@pytest.fixture
def jobs(url: str) -> Iterator[PersistentQueue[Any]]:
    with PersistentQueue[Any]("jobs", store=url) as queue:
        yield queue


class Stream:
    """Starts queries of one stream, each from the same checkpoint."""

    def __init__(self, spark: SparkSession, url: str, checkpoint: Path) -> None:
        self._spark = spark
        self._options = {"url": url, "queue": "jobs", "lease": "true", "consumerGroup": "nightly"}
        self.checkpoint = checkpoint

    def start(self, sink: Sink, available_now: bool = False, **options: str) -> StreamingQuery:
        reader = self._spark.readStream.format("localqueue").options(**self._options, **options)
        writer = reader.load().writeStream.foreachBatch(sink)
        if available_now:
            writer = writer.trigger(availableNow=True)
        return writer.option("checkpointLocation", str(self.checkpoint)).start()

    def run(self, sink: Sink, **options: str) -> StreamingQuery:
        """Take everything that is there now."""
        query = self.start(sink, available_now=True, **options)
        query.awaitTermination()
        return query


@pytest.fixture
def stream(spark: SparkSession, url: str, tmp_path: Path) -> Iterator[Stream]:
    yield Stream(spark, url, tmp_path / "checkpoint")
    for query in spark.streams.active:
        query.stop()


class Batches:
    """A sink: the values of each batch."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.values: list[list[Any]] = []
        self.refuses = refuses

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self.values.append(sorted(json.loads(row.value) for row in rows.collect()))
        if self.refuses:
            raise ValueError("the sink is full")


class Rows(list[Any]):
    """A sink: all rows."""

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self.extend(rows.collect())


def test_everything_is_taken_in_batches_and_acknowledged_also_the_last_one(
    stream: Stream, jobs: PersistentQueue[Any]
) -> None:
    jobs.put_many(range(5))
    sink = Batches()

    query = stream.run(sink, maxRowsPerTrigger="3")

    assert sink.values == [[0, 1, 2], [3, 4]]
    assert jobs.stats().total == 0
    assert json.loads(query.recentProgress[0]["sources"][0]["latestOffset"])["lag"] == 2


def test_a_row_is_the_message_as_other_reads_show_it(
    spark: SparkSession, stream: Stream, jobs: PersistentQueue[Any], url: str
) -> None:
    """Compared with what a batch read shows while the stream holds them."""
    jobs.put({"n": 1}, headers={"trace": "7"}, delay=0.001)
    jobs.put("text", ttl=600.0)
    failed = jobs.get_message()
    jobs.release(failed, error=ValueError("once"))
    seen: list[list[Any]] = []

    def sink(rows: DataFrame, batch: int) -> None:
        read = spark.read.format("localqueue").options(url=url, queue="jobs").load()
        seen.extend(sorted(each.collect()) for each in (rows, read))

    stream.run(sink)

    streamed, read = seen
    assert len(streamed) == 2
    assert streamed == read


def test_what_a_failed_sink_did_not_take_is_held_for_its_replay(
    stream: Stream, jobs: PersistentQueue[Any]
) -> None:
    jobs.put_many(range(3))
    refusing, sink = Batches(refuses=True), Batches()
    with pytest.raises(StreamingQueryException, match="the sink is full"):
        stream.run(refusing)
    assert (jobs.stats().inflight, jobs.stats().ready) == (3, 0)
    jobs.put(3)

    stream.run(sink)

    assert refusing.values == [[0, 1, 2]]
    assert sink.values == [[0, 1, 2], [3]]
    assert jobs.stats().total == 0


def test_a_worker_beside_it_takes_other_messages_and_a_second_query_none(
    stream: Stream, jobs: PersistentQueue[Any], tmp_path: Path
) -> None:
    both = threading.Barrier(2)
    worked: list[Any] = []
    taken: list[Any] = []

    def handle(value: Any) -> None:
        worked.append(value)
        if len(worked) == 1:
            both.wait(60)

    def sink(rows: DataFrame, batch: int) -> None:
        taken.extend(json.loads(row.value) for row in rows.collect())
        if batch == 0:
            both.wait(60)

    # Neither goes on before the other has some of them.
    jobs.put_many(range(100))
    query = stream.start(sink, maxRowsPerTrigger="10")
    worker = Worker(jobs, handle, prefetch=1)
    thread = threading.Thread(target=worker.run)
    thread.start()
    while jobs.stats().total:
        query.processAllAvailable()
    worker.stop()
    thread.join()

    assert min(len(worked), len(taken)) > 0
    assert sorted(worked + taken) == list(range(100))

    stream.checkpoint = tmp_path / "another"
    with pytest.raises(StreamingQueryException, match="'nightly' belongs to another query"):
        stream.run(Batches())


def test_a_payload_that_does_not_fit_is_an_error_and_its_message_is_not_lost(
    stream: Stream, jobs: PersistentQueue[Any]
) -> None:
    jobs.put({"name": "a", "amount": "many"})
    jobs.put({"name": "b", "amount": 2})
    rows = Rows()
    options = {"payloadSchema": "name STRING, amount INT", "columns": "id"}

    with pytest.raises(StreamingQueryException, match="amount"):
        stream.run(rows, **options)
    assert (rows, jobs.stats().total) == ([], 2)

    stream.run(rows, mode="PERMISSIVE", **options)

    assert sorted((row.name, row.amount) for row in rows) == [("a", None), ("b", 2)]
    assert jobs.stats().total == 0
