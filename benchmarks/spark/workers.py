"""What do handlers on Spark executors cost, and what do they gain where there are more cores?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING, Any

from benchmarks.durability import DURABILITIES, Durability
from benchmarks.report import Report, Row, describe_machine
from benchmarks.timing import seconds
from benchmarks.values import job
from localqueue import PersistentQueue
from localqueue.spark import session
from localqueue.spark.workers.worker import SparkWorker
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.workers import Worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_A_PROCESS = 0.25
"""With a handler that does nothing: all that Spark adds, against one that calls it itself."""
ON_TWO_CORES = 1.7
BUSY = 0.005
"""Seconds of CPU time for each message."""
WARM_UP = 2000

Handler = Callable[[Any], None]


def nothing(value: Any) -> None:
    """The handler."""


def busy(value: Any) -> None:
    """The handler that needs a core to itself."""
    end = thread_time() + BUSY
    while thread_time() < end:
        pass


def run(
    folder: Path, *, messages: int = 50_000, busy_messages: int = 2000, rounds: int = 3
) -> Iterator[Report]:
    """A queue drained by executors of a local master with two cores, and by one worker process."""
    spark = session("local[2]")
    rows = []
    try:
        for durability in DURABILITIES:
            what = f"a handler that does nothing, {durability}"
            measured = _measure(folder, spark, nothing, durability, messages, rounds)
            rows.append(_row(what, *measured, at_least=OF_A_PROCESS))
        what = f"{BUSY * 1e3:g} ms of CPU for each message, relaxed"
        measured = _measure(folder, spark, busy, "relaxed", busy_messages, rounds)
        rows.append(_row(what, *measured, at_least=ON_TWO_CORES))
    finally:
        spark.stop()
    yield Report(
        "spark",
        f"draining a queue with handlers on executors of local[2]; best of {rounds}",
        "on Spark",
        "one worker process",
        rows,
        describe_machine(folder),
        [f"Times are of one message; the first column is {_rate(rows[0])} messages a second."],
    )


def _rate(row: Row) -> str:
    assert row.measured is not None
    return f"{1 / row.measured:,.0f}"


def _row(what: str, ours: float, theirs: float, at_least: float) -> Row:
    return Row(what, ours, theirs, theirs / ours, at_least=at_least)


def _measure(
    folder: Path,
    spark: SparkSession,
    handler: Handler,
    durability: Durability,
    messages: int,
    rounds: int,
) -> tuple[float, float]:
    """The seconds of a message on Spark and with a process, each in its best round."""
    path = folder / f"{handler.__name__}-{durability}.sqlite3"
    with SQLiteQueueStore(path, durability=durability) as store:
        queue: PersistentQueue[Any] = PersistentQueue("jobs", store=store)

        def on_spark(count: int) -> float:
            return _drained(queue, SparkWorker(queue, handler, spark=spark), count)

        on_spark(min(messages, WARM_UP))
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(on_spark(messages))
            theirs.append(_drained(queue, Worker(queue, handler), messages))
    return min(ours), min(theirs)


def _drained(queue: PersistentQueue[Any], worker: Worker, messages: int) -> float:
    """The seconds of a message, the worker's start included."""
    queue.put_stream(job(number) for number in range(messages))
    spent = seconds(lambda: worker.run(until_empty=True))
    assert worker.summary.done == messages
    return spent / messages
