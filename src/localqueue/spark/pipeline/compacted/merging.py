"""Bringing events to a compacted topic: its files with those keys are written anew, in one commit.

As with every table, the commit carries the position that it reaches: whoever brings the same events
changes nothing, and what a crash left out comes with the next run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING

from localqueue.errors import ConfigurationError
from localqueue.failpoints import reach
from localqueue.spark.pipeline.compacted.changes import DELETED, changes, latest
from localqueue.spark.pipeline.compacted.regions import REGION, Regions, write_regions
from localqueue.spark.pipeline.compacted.topic import Compacted
from localqueue.spark.pipeline.data_file import DataFile
from localqueue.spark.pipeline.definition import Definition
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.moving import TRIES, busy, events_between
from localqueue.spark.pipeline.places import Feed, Positions
from localqueue.spark.pipeline.read_table import read_files
from localqueue.spark.pipeline.table import Table
from localqueue.spark.read.scan import Source

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class KeyStep:
    """Replaces. A row stands for a key, and the last message of the key makes it."""

    topic: Compacted

    @property
    def definition(self) -> Definition:
        return self.topic.definition


def merge_keys(
    spark: SparkSession, step: KeyStep, table: Table, events: Table, feed: Feed, upto: Positions
) -> int:
    """Bring the events up to these positions to the table; how many rows more it has."""
    step.topic.claim(table)
    for _ in range(TRIES):
        floors = table.positions(feed, upto)
        moves = {place: seq for place, seq in upto.items() if seq > floors.get(place, 0)}
        if not moves:
            return 0
        window = events_between(floors, moves)
        of_the_queue = f"queue = '{_quoted(step.topic.queue)}'"
        files = events.files(f"({window}) AND {of_the_queue}")
        later = _what_came_later(events, files)
        if later is not None:
            window = f"{window} OR {later}"
            files = events.files(f"({window}) AND {of_the_queue}")
        said = changes(read_files(spark, events, files).where(window), step.topic)
        old, made, before = _written(spark, step, table, said) if files else ([], [], 0)
        reach(f"pipeline.before-{table.name}")
        if _committed(table, old, made, feed, moves):
            reach(f"pipeline.after-{table.name}")
            return sum([file.rows for file in made]) - before
        for file in made:
            table.location.delete(file.path)
    raise busy(table)


def _what_came_later(events: Table, files: Collection[str]) -> str | None:
    """Events that are not older than those of these files; None when all are of one store.

    What another store says of a key may have come to the lake before, and yet be newer. If it was
    a value, the table has it; but a deletion leaves no row there, so it is read again.
    """
    listed = events.file_list()
    if not files or len({*listed["min.store"].to_pylist(), *listed["max.store"].to_pylist()}) == 1:
        return None
    rows = zip(listed["path"].to_pylist(), listed["min.at"].to_pylist(), strict=True)
    oldest = min(at for path, at in rows if path in files)
    return f"at >= '{oldest.astimezone(UTC).isoformat()}'"


def _written(
    spark: SparkSession, step: KeyStep, table: Table, said: DataFrame
) -> tuple[list[str], list[DataFile], int]:
    """Which files go, which take their place, and how many rows those had that go."""
    regions = Regions.of(table)
    said.persist()
    try:
        counted = said.groupBy(regions.number().alias(REGION)).count().collect()
        touched = {row[REGION] for row in counted}
        old = regions.files(touched)
        before = regions.rows_in(touched)
        n = sum(row["count"] for row in counted) + before
        if not n:
            return [], [], 0
        there = read_files(spark, table, old).withColumn(DELETED, _false())
        rows = latest(said.unionByName(there)).where(f"NOT {DELETED}").drop(DELETED)
        return old, write_regions(rows, regions, table.location, step.definition, n), before
    finally:
        said.unpersist()


def _committed(
    table: Table, old: list[str], made: list[DataFile], feed: Feed, moves: Positions
) -> bool:
    if old or made:
        return table.rewrite(old, made, feed=feed, positions=moves)
    return table.append([], feed, moves)


def check_topics(source: Source, lake: Lake, steps: Iterable[KeyStep]) -> None:
    """Before anything is made: that the values are kept, and that the tables are no others'.

    ConfigurationError otherwise.
    """
    without = source.without_payloads()
    for step in steps:
        if step.topic.queue in without:
            raise ConfigurationError(
                f"the journal of {step.topic.queue!r} keeps no payloads, so the values of"
                f" {step.topic.name} are not known; give the queue"
                " journal_policy=Journal(payloads=True)"
            )
        table = lake.table(step.topic.name)
        if table is not None:
            step.topic.check(table)


def _false() -> Column:
    from pyspark.sql import functions as f

    return f.lit(False)


def _quoted(text: str) -> str:
    return text.replace("'", "''")
