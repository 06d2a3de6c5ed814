"""How fast does a journal become tables, does that stay so, and how fast is the report?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import perf_counter as now
from typing import TYPE_CHECKING, NamedTuple, Self

from benchmarks.child import Child
from benchmarks.report import Report, Row, describe_machine
from benchmarks.spark.journals import BusyStore
from benchmarks.spark.process_tree import cpu_seconds
from benchmarks.timing import seconds
from localqueue.spark import session
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.pipeline import ROWS_PER_BATCH, Pipeline
from localqueue.spark.pipeline.places import Feed
from localqueue.spark.pipeline.report import write_report
from localqueue.spark.pipeline.writing import LakeWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OF_PARQUET = 0.3
"""Of the rate at which Spark reads the same events and writes them as Parquet."""
LONGEST_RUN = 45.0
"""Seconds for a million events into all tables, with the start of Spark."""
TWICE = 1.9
"""How much longer twice as many events may take."""
SLOWER = 1.1
"""What is called no slower: medians of two dozen batches differ by as much."""
LONGEST_REPORT = 15.0
LARGEST_PAGE = 6.0
"""MB."""
EVENTS_OF_A_LIFE = 3.2
MASTER = "local[2]"
PATIENCE = 1800.0
EMPTY_RUNS = 15
FEW = 24
"""Events of a batch of those that are many."""


class Measured(NamedTuple):
    """What a process took, from its start to its answer."""

    wall: float
    cpu: float
    """Of all processes that it has started as well."""


def run(
    folder: Path, *, events: int = 1_000_000, batches: int = 1000, rounds: int = 3
) -> Iterator[Report]:
    """A working day's journal of four queues, and one that grows by a few events at a time."""
    with BusyStore(folder / "small.sqlite3") as small, BusyStore(folder / "large.sqlite3") as large:
        small.work(events)
        large.work(2 * events)
        yield _tables(folder, small, large, rounds)
        # As many again as make a life of each for the report.
        large.work(round(EVENTS_OF_A_LIFE * events))
        yield _report(folder, large)
    yield _endurance(folder, batches)


# --- from the journal to tables -------------------------------------------------------------------
def _tables(folder: Path, small: BusyStore, large: BusyStore, rounds: int) -> Report:
    whole = _in_a_process(_bring, small.url, folder / "small")
    twice = _in_a_process(_bring, large.url, folder / "large")
    copied = _in_a_process(_copy, small.url, folder / "copy")
    spark = session(MASTER)
    try:
        ours, theirs = _best_of_both(spark, folder, small.url, rounds)
    finally:
        spark.stop()
    n, many = small.events, large.events
    return Report(
        "pipeline",
        f"the journal of four queues, {n:,} events of eight hours, as tables of a lake",
        "pipeline",
        "the other",
        [
            Row(
                "each event from the stream to a Delta table, against a batch read into Parquet",
                ours / n,
                theirs / n,
                theirs / ours,
                at_least=OF_PARQUET,
            ),
            Row(
                "all tables with the start of Spark, against a copy as Parquet",
                whole.wall,
                copied.wall,
                whole.wall / copied.wall,
                longest=LONGEST_RUN,
                more=_by_cpu(whole, copied),
            ),
            Row(
                f"all tables of {many:,} events, against {n:,}",
                twice.wall,
                whole.wall,
                twice.wall / whole.wall,
                at_most=TWICE,
                more=_by_cpu(twice, whole),
            ),
        ],
        describe_machine(folder),
        [
            f"The first line is of one event, best of {rounds} with a session that is warm.",
            f"The others are of whole processes; CPU time {whole.cpu:.0f} s and {twice.cpu:.0f} s.",
        ],
    )


def _best_of_both(spark: SparkSession, folder: Path, url: str, rounds: int) -> tuple[float, float]:
    """The seconds of the stream into ``events`` and of the batch read, each in its best round."""
    ours, theirs = [], []
    for number in range(1 + rounds):
        there = folder / f"round-{number}"
        ours.append(seconds(partial(_stream, spark, url, there)))
        theirs.append(seconds(partial(_batch, spark, url, there / "copy")))
    return min(ours[1:]), min(theirs[1:])


def _stream(spark: SparkSession, url: str, folder: Path) -> None:
    """The journal into the table ``events`` alone, as a pipeline does it."""
    writer = LakeWriter(spark, Lake(folder / "lake"), Feed(), (), ())

    def batch(rows: DataFrame, _: int) -> None:
        writer.write(rows)

    rows = spark.readStream.format("localqueue").options(
        url=url, content="journal", maxRowsPerTrigger=ROWS_PER_BATCH
    )
    query = rows.load().writeStream.foreachBatch(batch).trigger(availableNow=True)
    query.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()


def _batch(spark: SparkSession, url: str, folder: Path) -> None:
    rows = spark.read.format("localqueue").options(url=url, content="journal").load()
    rows.write.parquet(str(folder))


def _bring(pipe: Connection, url: str, lake: Path) -> None:
    Pipeline(url, lake, spark=session(MASTER)).run()
    pipe.send(cpu_seconds())


def _copy(pipe: Connection, url: str, folder: Path) -> None:
    _batch(session(MASTER), url, folder)
    pipe.send(cpu_seconds())


# --- many batches ---------------------------------------------------------------------------------
def _endurance(folder: Path, batches: int) -> Report:
    """A lake with a few batches and one with many take turns: what the machine does meets both."""
    early, some = min(10, batches // 4), max(2, min(32, batches // 4))
    spark = session(MASTER)
    try:
        with (
            _Growing(spark, folder / "young") as young,
            _Growing(spark, folder / "old") as old,
        ):
            young.bring(early - 1)
            old.bring(batches - 1)
            first, last = len(young.times) + 1, len(old.times) + 1
            for _ in range(some):
                young.bring(1)
                old.bring(1)
            empty = [
                (seconds(young.find_nothing), seconds(old.find_nothing)) for _ in range(EMPTY_RUNS)
            ]
    finally:
        spark.stop()
    nothing_new, nothing_new_later = (median(times) for times in zip(*empty, strict=True))
    before, after = median(young.times[first - 1 :]), median(old.times[last - 1 :])
    return Report(
        "pipeline",
        f"a lake that grows by {FEW} events at a time",
        "later",
        "before",
        [
            Row(
                f"batches {last:,}-{len(old.times):,} against {first}-{len(young.times)}",
                after,
                before,
                after / before,
                at_most=SLOWER,
            ),
            Row(
                f"a run with nothing new after {len(old.times):,} batches,"
                f" against {len(young.times)}",
                nothing_new_later,
                nothing_new,
                nothing_new_later / nothing_new,
                at_most=SLOWER,
            ),
        ],
        describe_machine(folder),
    )


class _Growing:
    """A lake, and a store whose events come to it a few at a time."""

    def __init__(self, spark: SparkSession, lake: Path) -> None:
        self.times: list[float] = []
        """The seconds of each batch."""
        self._store = BusyStore(lake.with_suffix(".sqlite3"), at_once=FEW // 3, every=60.0)
        self._pipeline = Pipeline(self._store.url, lake, spark=spark, rows_per_batch=FEW)
        self._events = 0

    def bring(self, batches: int) -> None:
        """At least so many batches, in one run."""
        self._events += batches * FEW
        self._store.work(self._events)
        self._pipeline.run(on_progress=lambda batch: self.times.append(batch.seconds))

    def find_nothing(self) -> None:
        assert self._pipeline.run().events == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()


# --- the report -----------------------------------------------------------------------------------
def _report(folder: Path, store: BusyStore) -> Report:
    _in_a_process(_bring, store.url, folder / "large")
    page = folder / "report.html"
    written = _in_a_process(_write, folder / "large", page)
    table = Lake(folder / "large").table("messages")
    assert table is not None
    lives = sum(table.file_list()["num_records"].to_pylist())
    size = page.stat().st_size / 1e6
    return Report(
        "pipeline",
        f"the report over {lives:,} lives of messages",
        "report",
        "",
        [
            Row("written, with the start of Python", written.wall, None, written.wall,
                longest=LONGEST_REPORT),
            Row("the page, in MB", None, None, size, at_most=LARGEST_PAGE),
        ],
        describe_machine(folder),
    )  # fmt: skip


def _write(pipe: Connection, lake: Path, page: Path) -> None:
    write_report(lake, page)
    pipe.send(cpu_seconds())


# --- measuring ------------------------------------------------------------------------------------
def _in_a_process(function: Callable[..., None], *arguments: object) -> Measured:
    start = now()
    with Child(function, *arguments) as child:
        if not child.pipe.poll(PATIENCE):
            raise TimeoutError(f"{function.__name__} did not answer in {PATIENCE:.0f} s")
        cpu = child.pipe.recv()
        return Measured(now() - start, cpu or 0.0)


def _by_cpu(one: Measured, other: Measured) -> dict[str, float]:
    return {"by CPU time": one.cpu / other.cpu} if one.cpu and other.cpu else {}
