"""Tables that can be streamed: how far they are, and which rows are new for somebody."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from localqueue.errors import ConfigurationError
from localqueue.spark.pipeline.attempts import ATTEMPTS
from localqueue.spark.pipeline.events import EVENTS
from localqueue.spark.pipeline.feeds import PROPERTY
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.messages import MESSAGES
from localqueue.spark.pipeline.places import Feed, Place
from localqueue.spark.pipeline.read_table import read_files
from localqueue.spark.pipeline.table import Table
from localqueue.spark.read.offsets import SHARD

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

STREAMED = (EVENTS.name, ATTEMPTS.name, MESSAGES.name)
"""Rows are only ever added to them, in the order of seq."""


def check_streamed(name: str, where: str) -> None:
    if name not in STREAMED:
        raise ConfigurationError(
            f"{where}: {name!r} cannot be streamed: its rows change, or it has no order. Streams"
            f" are of {', '.join(STREAMED)}; a materialized view reads all tables"
        )


@dataclass(frozen=True, slots=True)
class Window:
    """Rows of one feed of one journal, after one seq and up to another."""

    feed: Feed
    place: Place
    after: int
    upto: int

    @property
    def files(self) -> str:
        """Which files may have some of them, as SQL of the table's log."""
        store, shard = self.place
        return (
            f"(store = '{store}' AND shard = '{shard}'"
            f" AND seq > {self.after} AND seq <= {self.upto})"
        )

    @property
    def rows(self) -> Column:
        """Which rows they are."""
        from pyspark.sql import functions as f

        here = (f.col("store") == self.place.store) & (f.col("shard") == self.place.shard)
        rows = here & (f.col("seq") > self.after) & (f.col("seq") <= self.upto)
        return rows & f.col("queue").isin(*self.feed.queues) if self.feed.queues else rows


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows of a table that a reader does not have yet."""

    floors: Mapping[str, int]
    """Up to where the reader has them, by application."""
    moves: Mapping[str, int]
    """Up to where it has them afterwards; only what moves."""
    windows: Sequence[Window]

    def read(self, spark: SparkSession, source: Table) -> DataFrame:
        from pyspark.sql import functions as f

        files = source.files(" OR ".join(each.files for each in self.windows) or "false")
        chosen = reduce(or_, (each.rows for each in self.windows), f.lit(False))
        return read_files(spark, source, files).where(chosen)


def new_rows(lake: Lake, source: Table, reader: Table | None, flow: str) -> NewRows:
    """What the table has and the reader has not, as the reader's own log has it."""
    floors: dict[str, int] = {}
    moves: dict[str, int] = {}
    windows = []
    for feed, place in _feeds(lake):
        application = f"{flow}/{source.name}/{feed.application(place)}"
        floor = 0 if reader is None else reader.version_of(application)
        upto = source.position(feed, place)
        floors[application] = floor
        if upto > floor:
            moves[application] = upto
            windows.append(Window(feed, place, floor, upto))
    return NewRows(floors, moves, windows)


def _feeds(lake: Lake) -> Iterator[tuple[Feed, Place]]:
    """All that comes to the lake, as ``events`` keeps it."""
    events = lake.table(EVENTS.name)
    for name, text in {} if events is None else events.properties.items():
        if name.startswith(PROPERTY):
            for queues in json.loads(text):
                yield Feed(tuple(queues)), Place(name.removeprefix(PROPERTY), SHARD)
