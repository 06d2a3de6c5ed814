"""How fast is a queue read into a DataFrame, against Parquet and against rows put in by hand?"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report import Report, Row, describe_machine
from benchmarks.timing import seconds
from benchmarks.values import SIZE, job, varied_job
from localqueue import PersistentQueue
from localqueue.spark import session
from localqueue.stores.sqlite.store import SQLiteQueueStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OF_PARQUET = 0.5
"""Of Spark's own reader with the same rows and columns."""
OF_ROWS = 10.0
"""Times as fast as rows that the driver fetches and hands to ``createDataFrame``."""
BY_HAND = """
SELECT printf('%032x', m.id), q.name, 'ready', CAST(m.value AS TEXT), m.headers,
    coalesce(m.codec, 'json'), -m.rank, m.key, m.dedupe_key, m.attempts, m.failures, m.crashes,
    m.created_at, m.pos, m.expires_at, m.due_at, m.worker, m.failed_at, m.error
FROM message AS m JOIN queue AS q ON q.id = m.queue LIMIT ?
"""
FIELDS = """
id string, queue string, state string, value string, headers binary, codec string, priority int,
ordering_key string, dedupe_key string, attempts int, failures int, crashes int, created_at double,
available_at double, expires_at double, leased_until double, leased_by string, failed_at double,
last_error string
"""
"""The same columns, with times and headers as they are in the file."""
FEW = "id,value"
VALUES: dict[str, Callable[[int], dict[str, Any]]] = {
    "values alike": job,
    "values that differ": varied_job,
}
"""Parquet packs a million values that are nearly the same into a tenth of their size."""
TENTH = 10
"""One row in so many is enough to see what a row costs that is put in by hand."""


def run(folder: Path, *, rows: int = 1_000_000, rounds: int = 3) -> Iterator[Report]:
    """All columns of all messages, and those that most need, into a sink that does nothing."""
    spark = session("local[2]")
    table: list[Row] = []
    try:
        for words, made in VALUES.items():
            there = folder / made.__name__
            there.mkdir()
            path = there / "queue.sqlite3"
            _fill(path, rows, made)
            table += _measure(spark, there, path, rows, rounds, words)
    finally:
        spark.stop()
    yield Report(
        "spark",
        f"reading {rows:,} messages of {SIZE} bytes, into a sink that does nothing; best of"
        f" {rounds}",
        'format("localqueue")',
        "the other",
        table,
        describe_machine(folder),
        ["Times are of one row. Parquet has the same rows and columns, written by Spark."],
    )


def _fill(path: Path, rows: int, made: Callable[[int], dict[str, Any]]) -> None:
    with SQLiteQueueStore(path, durability="relaxed") as store:
        PersistentQueue[Any]("jobs", store=store).put_stream(map(made, range(rows)))


def _measure(
    spark: SparkSession, folder: Path, path: Path, rows: int, rounds: int, values: str
) -> Iterator[Row]:
    def queue(columns: str | None = None) -> DataFrame:
        source = spark.read.format("localqueue").option("url", f"sqlite:///{path}")
        return (source if columns is None else source.option("columns", columns)).load()

    def by_hand() -> DataFrame:
        with closing(sqlite3.connect(path)) as db:
            return spark.createDataFrame(db.execute(BY_HAND, (rows // TENTH,)).fetchall(), FIELDS)

    parquet = str(folder / "messages.parquet")
    queue().write.parquet(parquet)
    assert spark.read.parquet(parquet).count() == rows
    for words, columns, target in (("all columns", None, OF_PARQUET), (FEW, FEW, None)):
        ours, theirs = _best(
            rounds, partial(queue, columns), partial(_from_parquet, spark, parquet, columns)
        )
        yield Row(
            f"{words}, {values}, against Parquet",
            ours / rows,
            theirs / rows,
            theirs / ours,
            at_least=target,
        )
    ours, theirs = _best(rounds, queue, by_hand)
    theirs *= TENTH
    yield Row(
        f"all columns, {values}, against createDataFrame over rows of sqlite3",
        ours / rows,
        theirs / rows,
        theirs / ours,
        at_least=OF_ROWS,
    )


def _from_parquet(spark: SparkSession, path: str, columns: str | None) -> DataFrame:
    rows = spark.read.parquet(path)
    return rows if columns is None else rows.select(*columns.split(","))


def _best(
    rounds: int, ours: Callable[[], DataFrame], theirs: Callable[[], DataFrame]
) -> tuple[float, float]:
    """The seconds of both, each in its best round; one round before, which does not count."""
    times = [
        (seconds(lambda: _drop(ours())), seconds(lambda: _drop(theirs())))
        for _ in range(1 + rounds)
    ]
    return min(one for one, _ in times[1:]), min(other for _, other in times[1:])


def _drop(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()
