"""One batch of the journal, brought to all tables of a lake."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from localqueue.spark.pipeline.compacted.merging import KeyStep, merge_keys
from localqueue.spark.pipeline.definition import Definition
from localqueue.spark.pipeline.events import EVENTS, events_again
from localqueue.spark.pipeline.feeds import claim
from localqueue.spark.pipeline.gaps import GAPS
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.merging import Summed, merge_summary
from localqueue.spark.pipeline.moving import Appended, Appending, append_rows, missing_from
from localqueue.spark.pipeline.parquet_files import Rows, Target, write_table
from localqueue.spark.pipeline.places import Feed, Place
from localqueue.spark.pipeline.quarantine import QUARANTINE, OfSound, judged, unsound
from localqueue.spark.pipeline.read_table import read_table
from localqueue.spark.pipeline.steps import MergeStep, RowStep
from localqueue.spark.pipeline.summaries import Summary
from localqueue.spark.pipeline.table import Table
from localqueue.spark.pipeline.upkeep import (
    MANY,
    compact,
    drop_before,
    vacuum_others,
    vacuum_when_due,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class LakeWriter:
    """The tables of one pipeline, open. It lives in the driver; one thread uses it at a time."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        feed: Feed,
        silver: Sequence[RowStep],
        gold: Sequence[MergeStep | KeyStep],
    ) -> None:
        self._spark, self._lake, self._feed = spark, lake, feed
        self._silver, self._gold = silver, gold
        self._places: set[Place] = set()
        self._quarantine = lake.create(QUARANTINE)
        self._events = lake.create(EVENTS)
        self._definitions = [
            *(step.definition for step in silver),
            *(step.definition for step in gold),
        ]
        self._tables = {each.name: lake.create(each) for each in self._definitions}

    def expect(self, place: Place) -> int:
        """This journal will come; up to which seq ``events`` has it.

        ConfigurationError when the lake gets some of its queues by another way already.
        """
        if place not in self._places:
            claim(self._events, self._feed, place.store)
            self._places.add(place)
        return self._events.position(self._feed, place)

    def write(self, frame: DataFrame) -> tuple[int, dict[str, int]]:
        """Bring a batch of the journal to every table; its rows, and what each table got."""
        tables = [
            _appending(self._quarantine, QUARANTINE, unsound, only_with_rows=True),
            _appending(self._events, EVENTS, OfSound()),
        ]
        for step in self._silver:
            table = self._tables[step.definition.name]
            tables.append(_appending(table, step.definition, OfSound(step.rows)))
        wanted = _Wanted(self._feed, self._events, self._merged())
        done = append_rows(frame, tables, judged, self._feed, self._places, wanted)
        self._places.update(done.positions)
        added = dict(done.added)
        if done.rows:
            added.update(self._merge(wanted.summed(done)))
            self._compact()
        return done.rows, added

    def catch_up(self) -> None:
        """Bring to every table what ``events`` has and the table has not.

        So a crash between two tables is repaired even when the checkpoint is lost, and a table
        that was deleted, or that an older release did not have, is filled.
        """
        upto = self._events.positions(self._feed, self._places)
        behind = [
            (step, self._tables[step.definition.name])
            for step in self._silver
            if self._tables[step.definition.name].positions(self._feed, upto) != upto
        ]
        window = missing_from([table for _, table in behind], self._feed, upto)
        if window is not None:
            tables = [_appending(table, step.definition, step.rows) for step, table in behind]
            rows = read_table(self._spark, self._events, predicate=window)
            append_rows(rows, tables, events_again, self._feed, upto)
        self._merge()

    def note_gaps(self, place: Place, position: int, trims: Mapping[str, int]) -> None:
        """Remember which events after the position were trimmed, by queue; once each."""
        found = {queue: upto for queue, upto in trims.items() if upto > position}
        if not found:
            return
        gaps, upto = self._lake.create(GAPS), max(found.values())
        if gaps.position(self._feed, place) >= upto:
            return
        at = datetime.now(UTC)
        rows = [
            {"store": place.store, "shard": place.shard, "queue": queue, "after": position,
             "upto": end, "noticed_at": at}
            for queue, end in sorted(found.items())
        ]  # fmt: skip
        file = write_table(
            gaps.location, pa.Table.from_pylist(rows, schema=GAPS.schema), GAPS.statistics
        )
        if not gaps.append([file], self._feed, {place: upto}):
            # Another pipeline has noticed the same.
            gaps.location.delete(file.path)

    def _merged(self) -> list[tuple[MergeStep, Table]]:
        return [
            (step, self._tables[step.definition.name])
            for step in self._gold
            if isinstance(step, MergeStep)
        ]

    def _merge(self, made: Mapping[str, Summed] | None = None) -> dict[str, int]:
        upto = self._events.positions(self._feed, self._places)
        found = {}
        for step in self._gold:
            table = self._tables[step.definition.name]
            given = table, self._events, self._feed, upto
            if isinstance(step, KeyStep):
                found[table.name] = merge_keys(self._spark, step, *given)
            else:
                summed = (made or {}).get(table.name)
                found[table.name] = merge_summary(self._spark, step, *given, summed)
        return found

    def look_after(self, retention: Mapping[str, timedelta]) -> None:
        """Let go of what is older than is wanted, and once a day of files that nobody needs."""
        now = datetime.now(UTC)
        for table, definition in self._all():
            if definition.name in retention:
                drop_before(table, definition, now - retention[definition.name])
            vacuum_when_due(table, now)
        vacuum_others(self._lake, {table.name for table, _ in self._all()}, now)

    def _compact(self) -> None:
        keyed = {step.definition.name for step in self._gold if isinstance(step, KeyStep)}
        for table, definition in self._all():
            # Files that follow keys are not to be mixed.
            if table.name not in keyed:
                compact(table, definition, fewest=MANY, tiers=True)

    def _all(self) -> Iterable[tuple[Table, Definition]]:
        yield self._quarantine, QUARANTINE
        yield self._events, EVENTS
        for definition in self._definitions:
            yield self._tables[definition.name], definition


class _Wanted:
    """What gold wants to know of one batch, as far as its tables do not have it."""

    def __init__(
        self, feed: Feed, events: Table, merged: Sequence[tuple[MergeStep, Table]]
    ) -> None:
        self._feed, self._events, self._merged = feed, events, merged
        self._after: dict[Place, int] = {}
        self._asked: list[Summary] = []

    def __call__(self, places: Collection[Place]) -> Sequence[Summary]:
        new = [place for place in places if place not in self._after]
        self._after |= {place: self._events.position(self._feed, place) for place in new}
        self._asked = [
            Summary(
                step.definition.name, step.begin, OfSound(), table.positions(self._feed, places)
            )
            for step, table in self._merged
        ]
        return self._asked

    def summed(self, done: Appended) -> dict[str, Summed]:
        """What the last answer came to."""
        return {
            each.table: Summed(
                done.summaries[each.table], self._after, each.floors, dict(done.positions)
            )
            for each in self._asked
        }


def _appending(
    table: Table, definition: Definition, rows: Rows, *, only_with_rows: bool = False
) -> Appending:
    target = Target(table.name, table.location, definition.schema, definition.statistics, rows)
    return Appending(table, target, only_with_rows)
