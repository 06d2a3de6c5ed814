"""Streams in real queries: every row once, whatever dies, and errors that say what to do."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from localqueue import PersistentQueue
from localqueue.policies import Journal
from localqueue.stores.protocol import JournalEvent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PATIENCE = 60


class Rows:
    """A sink: the rows of every batch, by its number, and somebody who waits for them."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}
        self._changed = threading.Condition()

    def __call__(self, rows: DataFrame, number: int) -> None:
        found = rows.collect()
        with self._changed:
            self.batches[number] = found
            self._changed.notify_all()

    @property
    def all(self) -> list[Any]:
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.all) >= count, PATIENCE), self.batches


@pytest.fixture
def jobs(store_path: Path) -> Iterator[PersistentQueue[Any]]:
    policy = Journal(payloads=True)
    with PersistentQueue[Any]("jobs", store_path=store_path, journal_policy=policy) as queue:
        yield queue


class Queries:
    """Starts queries into ``Rows``, and stops those that are left."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self._spark = spark
        self._url = url
        self._folder = folder
        self._running: list[StreamingQuery] = []

    def read(self, **options: str) -> DataFrame:
        return self._spark.readStream.format("localqueue").options(url=self._url, **options).load()

    def start(
        self,
        sink: Callable[[DataFrame, int], None],
        *,
        name: str = "query",
        rows: DataFrame | None = None,
        **options: str,
    ) -> StreamingQuery:
        rows = self.read(**options) if rows is None else rows
        query = self._to(sink, rows, name).start()
        self._running.append(query)
        return query

    def run(
        self,
        sink: Callable[[DataFrame, int], None],
        *,
        name: str = "query",
        rows: DataFrame | None = None,
        **options: str,
    ) -> StreamingQuery:
        """All that is there, and no more; raises what the query ends with."""
        rows = self.read(**options) if rows is None else rows
        query = self._to(sink, rows, name).trigger(availableNow=True).start()
        self._running.append(query)
        assert query.awaitTermination(PATIENCE)
        return query

    def _to(
        self, sink: Callable[[DataFrame, int], None], rows: DataFrame, name: str
    ) -> DataStreamWriter:
        checkpoint = str(self._folder / name)
        return rows.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)

    def stop(self) -> None:
        for query in self._running:
            query.stop()


@pytest.fixture
def queries(spark: SparkSession, url: str, tmp_path: Path) -> Iterator[Queries]:
    queries = Queries(spark, url, tmp_path / "checkpoints")
    yield queries
    queries.stop()


def values(rows: list[Any]) -> list[Any]:
    return [json.loads(row.value) for row in rows]


def test_a_query_goes_on_from_its_checkpoint_with_every_event_once(
    queries: Queries, jobs: PersistentQueue[Any]
) -> None:
    rows = Rows()
    jobs.put_many(["a", "b", "c"])
    jobs.ack(jobs.get_message())

    queries.run(rows, queue="jobs", content="journal")
    before = len(rows.all)
    jobs.put("d")
    queries.run(rows, queue="jobs", content="journal")

    assert 0 < before < len(rows.all)
    assert [(row.position, row.kind) for row in rows.all] == [
        (event.position, event.kind) for event in jobs.journal()
    ]


def test_messages_and_dead_letters_are_streams_of_their_own(
    queries: Queries, jobs: PersistentQueue[Any]
) -> None:
    messages, dead = Rows(), Rows()
    for value in ("a", "b", "c"):
        jobs.put(value, headers={"from": "test"})
    acked, failed = jobs.get_message(), jobs.get_message()
    jobs.ack(acked)
    jobs.dead_letter(failed, error=ValueError("no"))

    queries.run(messages, queue="jobs", name="messages")
    queries.run(dead, queue="jobs", content="dead_letters", name="dead")

    # The payload of the one that is gone comes from the journal.
    assert values(messages.all) == ["a", "b", "c"]
    assert messages.all[0].id == acked.id
    assert [(row.id, json.loads(row.value)) for row in dead.all] == [(failed.id, failed.value)]


def test_a_continuous_query_of_some_queues_sees_puts_and_tells_its_lag(
    queries: Queries, store_path: Path, jobs: PersistentQueue[Any]
) -> None:
    rows = Rows()
    with (
        PersistentQueue[Any]("more", store_path=store_path) as more,
        PersistentQueue[Any]("other", store_path=store_path) as other,
    ):
        jobs.put_many(range(4))
        more.put(4)
        other.put("not asked for")

        query = queries.start(rows, queue="jobs,more", maxRowsPerTrigger="2")
        rows.wait_for(5)
        other.put("not asked for")
        more.put(5)
        rows.wait_for(6)
        progress = _wait_for_progress(query, lambda it: it["batchId"] == 3)

    assert [values(batch) for _, batch in sorted(rows.batches.items())] == [
        [0, 1],
        [2, 3],
        [4],
        [5],
    ]
    assert [_offset(it, "latestOffset")["lag"] for it in query.recentProgress[:4]] == [3, 1, 0, 0]
    assert _offset(progress, "endOffset")["0"] == _offset(progress, "latestOffset")["0"]


def _offset(progress: Any, name: str) -> Any:
    return json.loads(progress["sources"][0][name])


def _wait_for_progress(
    query: StreamingQuery, condition: Callable[[Any], bool] = lambda _: True
) -> Any:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        progress = query.lastProgress
        if progress is not None and condition(progress):
            return progress
        assert query.exception() is None
        time.sleep(0.02)  # Spark tells its own process only
    raise AssertionError(query.lastProgress)


def test_available_now_ends_also_while_producers_go_on(
    queries: Queries, jobs: PersistentQueue[Any]
) -> None:
    rows = Rows()
    jobs.put_many(range(10))
    done = threading.Event()

    def produce() -> None:
        while not done.is_set():
            jobs.put("later")

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        queries.run(rows, queue="jobs", maxRowsPerTrigger="200")
    finally:
        done.set()
        producer.join()
    queries.run(rows, queue="jobs")

    messages = [event.message_id for event in jobs.journal(limit=1_000_000)
                if event.kind == "enqueued"]  # fmt: skip
    assert [row.id for row in rows.all] == messages


def test_a_batch_that_failed_is_replayed_with_the_same_rows(
    queries: Queries, jobs: PersistentQueue[Any]
) -> None:
    rows, failed = Rows(), Rows()
    jobs.put_many(["a", "b"])

    def fails(batch: DataFrame, number: int) -> None:
        failed(batch, number)
        raise ArithmeticError("the sink is away")

    with pytest.raises(Exception, match="the sink is away"):
        queries.run(fails, queue="jobs")
    jobs.put("c")
    jobs.ack(jobs.get_message())
    queries.run(rows, queue="jobs")

    assert [row.id for row in rows.batches[0]] == [row.id for row in failed.batches[0]]
    # One of them was acknowledged meanwhile; the journal keeps its value.
    assert values(failed.all) == ["a", "b"]
    assert values(rows.all) == ["a", "b", "c"]


def test_a_task_that_is_tried_again_gives_its_rows_once(
    queries: Queries, jobs: PersistentQueue[Any], tmp_path: Path
) -> None:
    rows = Rows()
    jobs.put_many(range(20))
    tried = str(tmp_path / "tried")

    def dies_once(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import signal

        for batch in batches:
            yield batch
            try:
                os.close(os.open(tried, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)

    source = queries.read(queue="jobs", minPartitions="2").select("value")
    queries.run(rows, rows=source.mapInArrow(dies_once, "value string"))

    assert Path(tried).exists()
    assert sorted(values(rows.all)) == list(range(20))


def test_two_queries_side_by_side_each_have_every_row(
    queries: Queries, jobs: PersistentQueue[Any]
) -> None:
    one, two = Rows(), Rows()
    queries.start(one, queue="jobs", name="one", consumerGroup="one")
    queries.start(two, queue="jobs", name="two", consumerGroup="two")

    for value in range(5):
        jobs.put(value)
    one.wait_for(5)
    two.wait_for(5)

    assert values(one.all) == values(two.all) == list(range(5))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"queue": "nobody"}, "nobody"),
        ({"queue": "jobs", "startingOffsets": '{"0": 999999}'}, "is not there yet"),
    ],
)
def test_what_cannot_be_read_ends_the_query_with_a_sentence(
    queries: Queries, jobs: PersistentQueue[Any], options: dict[str, str], sentence: str
) -> None:
    jobs.put("a")

    with pytest.raises(Exception, match=sentence):
        queries.run(Rows(), rows=queries.read(**options))


# --- kill -9 ----------------------------------------------------------------------------------
# The sink is a file per batch, which a replay of the batch writes again.
DRIVER = """
import json, os, sys
from pathlib import Path
from localqueue.spark import session

url, folder = sys.argv[1], Path(sys.argv[2])
spark = session("local[2]", config={"spark.driver.memory": "512m"})

def sink(rows, number):
    text = json.dumps([[row.seq, row.kind] for row in rows.collect()])
    path = folder / f"{number}.json"
    if path.exists() and path.read_text() != text:
        (folder / "differs").write_text(f"{number}: {path.read_text()} then {text}")
    path.with_suffix(".part").write_text(text)
    path.with_suffix(".part").replace(path)
    print("batch", number, flush=True)

rows = spark.readStream.format("localqueue").options(
    url=url, queue="jobs", content="journal", maxRowsPerTrigger="50", consumerGroup="archive",
    startingOffsets="earliest",
).load()
query = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / "ck")).start()
print("started", flush=True)
query.awaitTermination()
"""


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.long)])
def test_a_driver_killed_at_random_moments_misses_no_event_and_writes_none_twice(
    url: str, jobs: PersistentQueue[Any], tmp_path: Path, kills: int
) -> None:
    folder = tmp_path / "sink"
    folder.mkdir()
    jobs.put_many(range(300))

    for _ in range(kills):
        with Driver(url, folder) as driver:
            driver.wait_for("batch")
            jobs.put_many(range(100))
            time.sleep(random.uniform(0.0, 1.0))  # at any point of a batch
    with Driver(url, folder) as driver:
        driver.wait_for("batch")
        jobs.put_many(range(100))
        last = _seq(jobs.journal(limit=10_000)[-1])
        while last not in [seq for seq, _ in _written(folder)]:
            driver.wait_for("batch")

    assert not (folder / "differs").exists(), (folder / "differs").read_text()
    assert _written(folder) == [(_seq(event), event.kind) for event in jobs.journal(limit=10_000)]


def _seq(event: JournalEvent) -> int:
    return int(event.position[16:], 16)


def _written(folder: Path) -> list[tuple[int, str]]:
    files = sorted(folder.glob("*.json"), key=lambda path: int(path.stem))
    return [(seq, kind) for path in files for seq, kind in json.loads(path.read_text())]


class Driver:
    """The program, with its JVM and all others that it starts; left, they end by kill -9."""

    def __init__(self, url: str, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, url, str(folder)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, start: str) -> None:
        """Until it prints a line that starts like this."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(start):
                return
        raise AssertionError("the driver ended")

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
