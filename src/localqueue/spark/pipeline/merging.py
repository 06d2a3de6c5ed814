"""Bringing what was summed up of events to a table whose rows are merged, in one commit.

The tasks that write a batch sum it up on the way. Where that does not follow what the table has,
because it was left behind by a crash or somebody else was faster, ``events`` is read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from localqueue.failpoints import reach
from localqueue.spark.pipeline.data_file import DataFile
from localqueue.spark.pipeline.events import events_again
from localqueue.spark.pipeline.moving import TRIES, busy, events_between
from localqueue.spark.pipeline.parquet_files import write_files, write_table
from localqueue.spark.pipeline.places import Feed, Place, Positions
from localqueue.spark.pipeline.read_table import read_file, read_files
from localqueue.spark.pipeline.steps import MergeStep
from localqueue.spark.pipeline.summaries import Summary
from localqueue.spark.pipeline.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Summed:
    """What a batch comes to, and from where to where it goes."""

    rows: pa.Table
    after: Mapping[Place, int]
    """What ``events`` had before the batch."""
    floors: Mapping[Place, int]
    """What was left out because the table had it."""
    upto: Mapping[Place, int]

    def is_all_of(self, floors: Positions, moves: Positions) -> bool:
        """Whether it is what leads from one to the other: with nothing left out, and no more."""
        return all(
            floors.get(place, 0) == self.floors.get(place, 0) == self.after.get(place, 0)
            and self.upto.get(place) == seq
            for place, seq in moves.items()
        ) and all(
            seq <= self.floors.get(place, 0)
            for place, seq in self.upto.items()
            if place not in moves
        )


def merge_summary(
    spark: SparkSession,
    step: MergeStep,
    table: Table,
    events: Table,
    feed: Feed,
    upto: Positions,
    summed: Summed | None = None,
) -> int:
    """Bring the events up to these positions to the table; how many rows more it has.

    Its new rows, and those of its files that may have the same keys, are merged and put in the
    place of these files, in one commit with the position.
    """
    for _ in range(TRIES):
        floors = table.positions(feed, upto)
        moves = {place: seq for place, seq in upto.items() if seq > floors.get(place, 0)}
        if not moves:
            return 0
        if summed is not None and summed.is_all_of(floors, moves):
            news = summed.rows
        else:
            news = _summed_again(spark, step, events, events_between(floors, moves))
        old, made, before = _written(step, table, news) if news.num_rows else ([], [], 0)
        reach(f"pipeline.before-{table.name}")
        if old or made:
            done = table.rewrite(old, made, feed=feed, positions=moves)
        else:
            done = table.append([], feed, moves)
        if done:
            reach(f"pipeline.after-{table.name}")
            return sum([file.rows for file in made]) - before
        for file in made:
            table.location.delete(file.path)
    raise busy(table)


def _summed_again(spark: SparkSession, step: MergeStep, events: Table, window: str) -> pa.Table:
    files = events.files(window)
    if not files:
        return step.begin().result()
    # What a task sums up must be one part of the journal, and files come to tasks by their size.
    order = ("store", "shard", "seq")
    rows = read_files(spark, events, files).where(window).repartitionByRange(*order)
    rows = rows.sortWithinPartitions(*order)
    wanted = Summary(step.definition.name, step.begin, _as_they_are)
    written = write_files(rows, [], events_again, [wanted])
    return written.summaries.get(step.definition.name, step.begin().result())


def _written(
    step: MergeStep, table: Table, news: pa.Table
) -> tuple[list[str], list[DataFile], int]:
    """Which files go, which take their place, and how many rows those had that go.

    The newest span gets a file of its own, for only that is likely to change again. So do the rows
    of other stores that were in the same files: these are not to be read for this one again.
    """
    definition = step.definition
    first, newest = pc.min(news[step.span]).as_py(), pc.max(news[step.span]).as_py()
    stores = pc.unique(news["store"])
    here = " OR ".join(f"store = '{store}'" for store in stores.to_pylist())
    old = table.files(f"{definition.moment} >= '{_shown(first)}' AND ({here})")
    there = [batch for name in old for batch in read_file(table.location, name, definition.schema)]
    rows = step.merge(news, pa.Table.from_batches(there, definition.schema))
    moments = rows[definition.moment]
    is_new = pc.greater_equal(moments, pa.scalar(newest, moments.type))
    is_here = pc.is_in(rows["store"], value_set=stores)
    made = [
        write_table(table.location, some, definition.statistics)
        for place in (pc.invert(is_here), is_here)
        for age in (pc.invert(is_new), is_new)
        if (some := rows.filter(pc.and_(place, age))).num_rows
    ]
    return old, made, sum([batch.num_rows for batch in there])


def _shown(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _as_they_are(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch
