"""Pipelines that go on until they are told to end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from localqueue import PersistentQueue
from localqueue.errors import ConfigurationError, LocalQueueError
from localqueue.failpoints import listening
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.pipeline import Pipeline, Progress, Run
from tests.pipeline.reckoning import journal_of, reckon, rows_of
from tests.pipeline.working import open_queue, work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = 60.0


@pytest.fixture
def queue(url: str) -> Iterator[PersistentQueue[Any]]:
    with open_queue(url) as queue:
        yield queue


class Running:
    """A pipeline on a thread of its own; ``batches`` has each batch as it comes."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.batches: SimpleQueue[Progress] = SimpleQueue()
        self.run: Run | None = None
        self._failure: LocalQueueError | None = None
        self._pipeline = pipeline
        self._thread = threading.Thread(target=self._go_on)
        self._thread.start()

    def _go_on(self) -> None:
        try:
            self.run = self._pipeline.run(once=False, every=0.1, on_progress=self.batches.put)
        except LocalQueueError as error:
            self._failure = error

    def joined(self) -> Run:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure
        assert self.run is not None
        return self.run


def test_it_brings_what_comes_until_it_is_stopped(
    spark: SparkSession, url: str, lake: Lake, queue: PersistentQueue[Any]
) -> None:
    work(queue, 5)
    pipeline = Pipeline(url, lake, spark=spark)
    running = Running(pipeline)
    batches = [running.batches.get(timeout=PATIENCE)]
    work(queue, 5)
    # A batch may begin in the middle of that work, and bring the rest with the next one.
    while sum(each.events for each in batches) < len([*journal_of(queue)]):
        batches.append(running.batches.get(timeout=PATIENCE))

    pipeline.stop()

    run = running.joined()
    assert len(batches) > 1
    assert (run.batches, run.events) == (len(batches), sum(each.events for each in batches))
    reckon(lake, queue)
    # The same object can run again.
    work(queue, 2)
    assert pipeline.run().events > 0
    reckon(lake, queue)


def test_stop_waits_for_the_batch_that_is_being_written(
    spark: SparkSession, url: str, lake: Lake, queue: PersistentQueue[Any]
) -> None:
    """It is asked for between two tables, from a thread of its own."""
    work(queue, 5)
    pipeline = Pipeline(url, lake, spark=spark)
    stopping = threading.Thread(target=pipeline.stop)

    def ask(at: str) -> None:
        if at == "pipeline.after-events":
            stopping.start()
            stopping.join(0.5)
            assert stopping.is_alive()

    with listening(ask):
        run = Running(pipeline).joined()
    stopping.join(PATIENCE)

    assert run.batches == 1
    reckon(lake, queue)


def test_one_that_is_stopped_before_it_runs_ends_at_once(
    spark: SparkSession, url: str, lake: Lake, queue: PersistentQueue[Any]
) -> None:
    work(queue, 5)
    pipeline = Pipeline(url, lake, spark=spark)

    pipeline.stop()

    assert pipeline.run(once=False).events == 0
    assert pipeline.run().events > 0


def test_a_view_that_fails_keeps_no_event_from_the_lake(
    spark: SparkSession, url: str, lake: Lake, queue: PersistentQueue[Any], tmp_path: Path
) -> None:
    """It is said when it happens, and again at the end."""
    views = tmp_path / "views.sql"
    views.write_text("CREATE MATERIALIZED VIEW bad AS SELECT no_column FROM messages")
    work(queue, 5)
    pipeline = Pipeline(url, lake, spark=spark, views=views)
    running = Running(pipeline)
    running.batches.get(timeout=PATIENCE)
    work(queue, 5)
    running.batches.get(timeout=PATIENCE)

    pipeline.stop()

    with pytest.raises(ConfigurationError, match=r"views\.sql:1: bad: .*no_column"):
        running.joined()
    # The second batch may have come in the middle of the work.
    Pipeline(url, lake, spark=spark).run()
    reckon(lake, queue)


def test_one_that_is_stopped_cleans_nothing_up_any_more(
    spark: SparkSession, url: str, lake: Lake, queue: PersistentQueue[Any]
) -> None:
    work(queue, 5)
    pipeline = Pipeline(url, lake, spark=spark, retention={"attempts": timedelta(0)})
    running = Running(pipeline)
    running.batches.get(timeout=PATIENCE)

    pipeline.stop()

    running.joined()
    assert rows_of(lake, "attempts")
    pipeline.run()
    assert not rows_of(lake, "attempts")


def test_ctrl_c_ends_it_and_leaves_the_lake_whole(
    spark: SparkSession, url: str, lake: Lake, queue: PersistentQueue[Any]
) -> None:
    work(queue, 5)
    pipeline = Pipeline(url, lake, spark=spark)

    def interrupt(at: str) -> None:
        if at == "pipeline.after-events":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), listening(interrupt):
        pipeline.run(once=False)
    work(queue, 5)
    pipeline.run()

    reckon(lake, queue)


def test_it_lets_go_of_what_is_old_while_it_runs(
    spark: SparkSession,
    url: str,
    lake: Lake,
    queue: PersistentQueue[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("localqueue.spark.pipeline.pipeline.LOOK_AFTER_EVERY", 1)
    work(queue, 5)
    pipeline = Pipeline(url, lake, spark=spark, retention={"attempts": timedelta(0)})
    running = Running(pipeline)
    running.batches.get(timeout=PATIENCE)

    enough = threading.Event()
    for _ in range(600):
        if not rows_of(lake, "attempts"):
            break
        enough.wait(0.1)
    still_runs = running.run is None
    pipeline.stop()

    running.joined()
    assert still_runs
    assert rows_of(lake, "attempts") == []
    assert len(rows_of(lake, "messages")) == 4
