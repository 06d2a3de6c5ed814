"""What does it cost to write a DataFrame into a queue, against putting the same messages?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.durability import DURABILITIES, Durability
from benchmarks.report import Report, Row, describe_machine
from benchmarks.timing import seconds
from benchmarks.values import job
from localqueue import PersistentQueue
from localqueue.spark import session
from localqueue.stores.protocol import LARGEST_BATCH
from localqueue.stores.sqlite.store import SQLiteQueueStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OF_PUT_MANY = 0.45
"""Of the rate at which one process puts them, which has no task, no staging and no ledger."""


def run(folder: Path, *, rows: int = 1_000_000, rounds: int = 3) -> Iterator[Report]:
    """Rows of JSON text from a local master with two cores, and ``put_many`` of as many values."""
    spark = session("local[2]")
    try:
        table = [
            _row(durability, *_measure(folder, spark, durability, rows, rounds))
            for durability in DURABILITIES
        ]
    finally:
        spark.stop()
    yield Report(
        "spark",
        f"{rows:,} rows of JSON text into a queue, each exactly once; best of {rounds}",
        "df.write",
        "put_many",
        table,
        describe_machine(folder),
        [f"Times are of one row. put_many takes {LARGEST_BATCH:,} values at a time."],
    )


def _row(durability: Durability, ours: float, theirs: float) -> Row:
    return Row(durability, ours, theirs, theirs / ours, at_least=OF_PUT_MANY)


def _measure(
    folder: Path, spark: SparkSession, durability: Durability, rows: int, rounds: int
) -> tuple[float, float]:
    """The seconds of a row, written by Spark and put, each in its best round."""
    values = [job(number) for number in range(LARGEST_BATCH)]
    _write(_frame(spark, LARGEST_BATCH), folder / f"warm-{durability}.sqlite3", durability)
    ours, theirs = [], []
    for number in range(rounds):
        frame = _frame(spark, rows)
        path = folder / f"{durability}-{number}.sqlite3"
        ours.append(seconds(lambda: _write(frame, path, durability)))  # noqa: B023  called at once
        _check(path, rows)
        path = folder / f"{durability}-{number}-alone.sqlite3"
        with SQLiteQueueStore(path, durability=durability) as store:
            queue: PersistentQueue[Any] = PersistentQueue("jobs", store=store)
            queue.put(values[0])
            theirs.append(seconds(lambda: _put(queue, values, rows)))  # noqa: B023
    return min(ours) / rows, min(theirs) / rows


def _frame(spark: SparkSession, rows: int) -> DataFrame:
    """The same values as ``job`` makes, as text."""
    padding = "x" * len(job(0)["path"])
    return spark.range(0, rows, 1, 2).selectExpr(
        "to_json(named_struct('job', 'resize', 'number', id, 'path',"
        f" '{padding}', 'width', 1024, 'urgent', false)) AS value"
    )


def _write(frame: DataFrame, path: Path, durability: Durability) -> None:
    frame.write.format("localqueue").mode("append").options(
        url=f"sqlite:///{path}?durability={durability}", queue="jobs", sinkId="bench"
    ).save()


def _put(queue: PersistentQueue[Any], values: list[Any], rows: int) -> None:
    for start in range(0, rows, len(values)):
        queue.put_many(values[: rows - start])


def _check(path: Path, rows: int) -> None:
    with PersistentQueue[Any]("jobs", store_path=path) as queue:
        assert queue.qsize() == rows
