"""Moving tables on: rows are written, then committed with the position that they reach.

Both ways end when the tables have everything up to the end of their input, whoever brought it: if
another pipeline was faster with some of it, the files are thrown away and the rest is written
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from localqueue.errors import StoreBusy
from localqueue.failpoints import reach
from localqueue.spark.pipeline.parquet_files import Rows, Target, Written, write_files
from localqueue.spark.pipeline.places import Feed, Place, Positions
from localqueue.spark.pipeline.read_table import read_files
from localqueue.spark.pipeline.steps import MergeStep
from localqueue.spark.pipeline.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIES = 20
"""How often the same rows are written because somebody else was faster."""


@dataclass(frozen=True, slots=True)
class Appending:
    """A table that gets rows of its own out of every batch."""

    table: Table
    target: Target
    only_with_rows: bool = False
    """Whether its position stays where it is when a batch has nothing for it."""


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of one input."""

    positions: Positions
    """How far the input went."""
    rows: int
    """How many rows it had."""
    added: Mapping[str, int]
    """How many rows each table got."""


def append_rows(
    frame: DataFrame,
    tables: Sequence[Appending],
    prepare: Rows,
    feed: Feed,
    places: Iterable[Place],
) -> Appended:
    """Bring the rows of the frame to these tables, in this order, each row once.

    ``places`` are the journals that are expected. One that is not among them is noticed, and only
    costs a second writing when some of its rows are there already.
    """
    known, added = set(places), {each.table.name: 0 for each in tables}
    waiting, positions, rows = list(tables), dict[Place, int](), 0
    for _ in range(TRIES):
        floors = {each.table.name: each.table.positions(feed, known) for each in waiting}
        targets = [replace(each.target, floors=floors[each.table.name]) for each in waiting]
        written = write_files(frame, targets, prepare)
        known.update(written.positions)
        positions, rows = dict(written.positions), written.rows
        while waiting:
            each = waiting[0]
            if not _committed(each, written, feed, floors[each.table.name]):
                break
            added[each.table.name] += sum(file.rows for file in written.files[each.table.name])
            del waiting[0]
        if not waiting:
            return Appended(positions, rows, added)
        for each in waiting:
            written.discard(each.table.name, each.table.location)
    raise _busy(waiting[0].table)


def _committed(each: Appending, written: Written, feed: Feed, floors: Positions) -> bool:
    table, files = each.table, written.files[each.table.name]
    for place in written.positions:
        if table.position(feed, place) != floors.get(place, 0):
            return False
    moves = {p: seq for p, seq in written.positions.items() if seq > floors.get(p, 0)}
    if not moves or (each.only_with_rows and not files):
        written.discard(table.name, table.location)
        return True
    reach(f"pipeline.before-{table.name}")
    done = table.append(files, feed, moves)
    if done:
        reach(f"pipeline.after-{table.name}")
    return done


def merge_rows(
    spark: SparkSession, step: MergeStep, table: Table, events: Table, feed: Feed, upto: Positions
) -> int:
    """Bring the events up to these positions to a table whose rows are merged; how many files.

    Its new rows, and those of its files that may have the same keys, are merged and put in the
    place of these files, in one commit with the position.
    """
    for _ in range(TRIES):
        floors = table.positions(feed, upto)
        moves = {place: seq for place, seq in upto.items() if seq > floors.get(place, 0)}
        if not moves:
            return 0
        window = _window(floors, moves)
        files = events.files(window)
        span = _span(events, files)
        if span is None:
            if table.append([], feed, moves):
                return 0
            continue
        old = table.files(f"{step.definition.moment} >= '{_bucket(span[0], step.grain)}'")
        news = step.summarize(read_files(spark, events, files).where(window))
        rows = step.merge(news.unionByName(read_files(spark, table, old)))
        targets = _old_and_new(step, table, _bucket(span[1], step.grain))
        written = write_files(rows, targets, _as_they_are)
        made = [file for files_of in written.files.values() for file in files_of]
        reach(f"pipeline.before-{table.name}")
        if table.rewrite(old, made, feed=feed, positions=moves):
            reach(f"pipeline.after-{table.name}")
            return len(made)
        for file in made:
            table.location.delete(file.path)
    raise _busy(table)


def missing_from(tables: Sequence[Table], feed: Feed, upto: Positions) -> str | None:
    """The events that one of the tables does not have yet, as SQL; None when all have them."""
    floors = {
        place: min((table.position(feed, place) for table in tables), default=seq)
        for place, seq in upto.items()
    }
    moves = {place: seq for place, seq in upto.items() if seq > floors[place]}
    return _window(floors, moves) if moves else None


def _window(floors: Positions, moves: Positions) -> str:
    """The events that the table does not have, as SQL."""
    return " OR ".join(
        f"(store = '{place.store}' AND shard = '{place.shard}'"
        f" AND seq > {floors.get(place, 0)} AND seq <= {seq})"
        for place, seq in moves.items()
    )


def _span(events: Table, files: Sequence[str]) -> tuple[datetime, datetime] | None:
    """The first and last moment that these files may have; None when there are no files."""
    listed = events.file_list()
    rows = listed.filter(pc.is_in(listed["path"], value_set=pa.array(files, pa.string())))
    if not rows.num_rows:
        return None
    return pc.min(rows["min.at"]).as_py(), pc.max(rows["max.at"]).as_py()


def _bucket(moment: datetime, grain: int) -> str:
    seconds = int(moment.timestamp()) // grain * grain
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _old_and_new(step: MergeStep, table: Table, newest: str) -> list[Target]:
    """Two files: the newest span in one of its own, for only that is likely to change again."""
    at = datetime.fromisoformat(newest)
    schema, statistics = step.definition.schema, step.definition.statistics
    return [
        Target(
            f"{table.name}/{which}",
            table.location,
            schema,
            statistics,
            _Side(schema, step.definition.moment, at, newer),
        )
        for which, newer in (("old", False), ("new", True))
    ]


@dataclass(frozen=True, slots=True)
class _Side:
    """The rows before a moment, or from it on, with the table's own types."""

    schema: pa.Schema
    moment: str
    at: datetime
    newer: bool

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [batch[field.name].cast(field.type) for field in self.schema]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        border = pa.scalar(self.at, self.schema.field(self.moment).type)
        compare = pc.greater_equal if self.newer else pc.less
        return rows.filter(compare(rows[self.moment], border))


def _as_they_are(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _busy(table: Table) -> StoreBusy:
    return StoreBusy(
        f"the table {table.name} was changed by others {TRIES} times before this batch could be"
        " committed; nothing of it is lost, run the pipeline again"
    )
