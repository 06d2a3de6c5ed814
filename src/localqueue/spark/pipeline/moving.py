"""Moving tables on: rows are written, then committed with the position that they reach.

It ends when the tables have everything up to the end of their input, whoever brought it: if
another pipeline was faster with some of it, the files are thrown away and the rest is written
again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from localqueue.errors import StoreBusy
from localqueue.failpoints import reach
from localqueue.spark.pipeline.parquet_files import Rows, Target, Written, write_files
from localqueue.spark.pipeline.places import Feed, Place, Positions
from localqueue.spark.pipeline.summaries import Summary
from localqueue.spark.pipeline.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Wanted = Callable[[Collection[Place]], Sequence[Summary]]
"""Which summaries are wanted of rows of these journals."""

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
    summaries: Mapping[str, pa.Table]
    """What was asked for, by table."""


def append_rows(
    frame: DataFrame,
    tables: Sequence[Appending],
    prepare: Rows,
    feed: Feed,
    places: Iterable[Place],
    wanted: Wanted = lambda places: (),
) -> Appended:
    """Bring the rows of the frame to these tables, in this order, each row once.

    ``places`` are the journals that are expected. One that is not among them is noticed, and only
    costs a second writing when some of its rows are there already. ``wanted`` is asked again for
    every writing: who leaves out what a table has must know all journals, too.
    """
    known, added = set(places), {each.table.name: 0 for each in tables}
    waiting, positions, rows = list(tables), dict[Place, int](), 0
    for _ in range(TRIES):
        floors = {each.table.name: each.table.positions(feed, known) for each in waiting}
        targets = [replace(each.target, floors=floors[each.table.name]) for each in waiting]
        written = write_files(frame, targets, prepare, wanted(known))
        known.update(written.positions)
        positions, rows = dict(written.positions), written.rows
        while waiting:
            each = waiting[0]
            if not _committed(each, written, feed, floors[each.table.name]):
                break
            added[each.table.name] += sum(file.rows for file in written.files[each.table.name])
            del waiting[0]
        if not waiting:
            return Appended(positions, rows, added, written.summaries)
        for each in waiting:
            written.discard(each.table.name, each.table.location)
    raise busy(waiting[0].table)


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


def missing_from(tables: Sequence[Table], feed: Feed, upto: Positions) -> str | None:
    """The events that one of the tables does not have yet, as SQL; None when all have them."""
    floors = {
        place: min((table.position(feed, place) for table in tables), default=seq)
        for place, seq in upto.items()
    }
    moves = {place: seq for place, seq in upto.items() if seq > floors[place]}
    return events_between(floors, moves) if moves else None


def events_between(floors: Positions, moves: Positions) -> str:
    """The events after some positions up to others, as SQL."""
    return " OR ".join(
        f"(store = '{place.store}' AND shard = '{place.shard}'"
        f" AND seq > {floors.get(place, 0)} AND seq <= {seq})"
        for place, seq in moves.items()
    )


def busy(table: Table) -> StoreBusy:
    return StoreBusy(
        f"the table {table.name} was changed by others {TRIES} times before this batch could be"
        " committed; nothing of it is lost, run the pipeline again"
    )
