"""How soon does a running query have a message, and does that stay so?"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from statistics import median, quantiles
from time import perf_counter as now
from time import sleep
from typing import TYPE_CHECKING, Any

from benchmarks.report import Report, Row, describe_machine
from benchmarks.values import job
from localqueue import PersistentQueue
from localqueue.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

USUAL, LONGEST = 0.5, 1.0
"""Seconds: what half of the messages and what 99 of 100 must stay under."""
SLOWER = 1.25
"""How much longer the last batches of a run may take than the first ones."""
WARM_UP = 50
PAUSE = 0.1
"""The longest pause before a message, in seconds: any moment of Spark's polling is met."""
PATIENCE = 120.0


def run(folder: Path, *, messages: int = 300, rounds: int = 3) -> Iterator[Report]:
    """One message at a time for a query that waits; a file for Spark's own source beside it."""
    spark = session("local[2]")
    try:
        measured = [_measure(spark, folder / str(each), messages) for each in range(rounds)]
    finally:
        spark.stop()
    seen, files = min(measured, key=lambda both: quantiles(both[0], n=100)[98])
    ours, theirs = quantiles(seen, n=100), quantiles(files, n=100)
    some = max(10, messages // 10)
    first, last = median(seen[:some]), median(seen[-some:])
    yield Report(
        "spark",
        "put until foreachBatch has the row, in a query that runs; against a file for Spark's own"
        " source of files",
        "until the row is there",
        "a file",
        [
            Row("half of all", ours[49], theirs[49], ours[49] / theirs[49], longest=USUAL),
            Row("99 of 100", ours[98], theirs[98], ours[98] / theirs[98], longest=LONGEST),
            Row(
                f"batches {messages - some}-{messages} against the first {some}",
                last,
                first,
                last / first,
                at_most=SLOWER,
            ),
        ],
        describe_machine(folder),
    )


def _measure(
    spark: SparkSession, folder: Path, messages: int
) -> tuple[Sequence[float], Sequence[float]]:
    """The seconds of each message, and of each file."""
    incoming = folder / "incoming"
    incoming.mkdir(parents=True)
    path = folder / "queue.sqlite3"
    with PersistentQueue[Any]("jobs", store_path=path) as queue:
        queue.put(job(0))
        stream = spark.readStream.format("localqueue").options(
            url=f"sqlite:///{path}", queue="jobs"
        )
        seen = _times(stream.load(), folder / "ours", lambda _: queue.put(job(1)), messages)

    def write(number: int) -> None:
        part = folder / "part"
        part.write_text(f"{number}\n")
        part.replace(incoming / f"{number}.txt")

    write(-1)
    files = spark.readStream.format("text").load(str(incoming))
    return seen, _times(files, folder / "theirs", write, messages)


def _times(
    rows: DataFrame, checkpoint: Path, tell: Callable[[int], object], messages: int
) -> list[float]:
    """Of each message until the query has its row; one is there before, to show that it runs."""
    heard: SimpleQueue[float] = SimpleQueue()

    def sink(batch: DataFrame, _: int) -> None:
        if batch.collect():
            heard.put(now())

    chance = random.Random(6)
    times = []
    with ExitStack() as stack:
        writer = rows.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
        query = writer.start()
        stack.callback(query.stop)
        heard.get(timeout=PATIENCE)
        for number in range(WARM_UP + messages):
            sleep(chance.uniform(0.0, PAUSE))
            start = now()
            tell(number)
            times.append(heard.get(timeout=PATIENCE) - start)
    return times[WARM_UP:]
