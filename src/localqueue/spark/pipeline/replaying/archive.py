"""What a lake has of a window: the messages that came in it, and what of it is missing."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from localqueue.spark.pipeline.events import EVENTS
from localqueue.spark.pipeline.feeds import PROPERTY
from localqueue.spark.pipeline.gaps import GAPS
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.places import Feed, Place
from localqueue.spark.pipeline.read_table import read_files
from localqueue.spark.pipeline.replaying.window import ARRIVALS, REPLAY_OF, Window
from localqueue.spark.pipeline.report.reading import read_columns
from localqueue.spark.pipeline.table import Table
from localqueue.spark.read.offsets import SHARD

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_BEGINNING = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Arrived:
    """What came to one queue of one store in the window."""

    store: str
    queue: str
    messages: int
    with_payload: int
    first_at: datetime | None
    last_at: datetime | None
    from_the_start: bool
    """Whether the first of its events in the window is the one that made the queue."""
    first_event_at: datetime


@dataclass(frozen=True, slots=True)
class Hole:
    """Events that the lake never got, or has let go: their queue, and when they may have been."""

    queue: str
    began: datetime
    ended: datetime


def stores_in(events: Table) -> list[str]:
    """The stores whose events come to the lake, by their digits."""
    names = [name for name in events.properties if name.startswith(PROPERTY)]
    return sorted(name.removeprefix(PROPERTY) for name in names)


def position_of(events: Table, store: str, queue: str) -> int | None:
    """Up to which seq the lake has the events of a queue; None when they do not come to it."""
    feeds: list[list[str]] = json.loads(events.properties.get(PROPERTY + store, "[]"))
    for queues in feeds:
        if not queues or queue in queues:
            return events.position(Feed(tuple(queues)), Place(store, SHARD))
    return None


class Archive:
    """The events of a window, of some stores. It reads the files that may have some of them.

    ``in_turn`` says that they are names of one store, and each follows the one before it.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        events: Table,
        window: Window,
        stores: Sequence[str],
        *,
        in_turn: bool,
    ) -> None:
        self._spark, self._lake, self._events = spark, lake, events
        self._window, self._stores, self._in_turn = window, stores, in_turn
        self.files = events.files(window.of_files())

    def arrived(self, queues: Collection[str]) -> list[Arrived]:
        """What came to these queues, or to all when none is named; one job of Spark."""
        from pyspark.sql import functions as f

        came = _came()
        found = (
            self._rows(queues)
            .groupBy("store", "queue")
            .agg(
                f.count_if(came).alias("messages"),
                f.count_if(came & f.col("value").isNotNull()).alias("with_payload"),
                f.min(f.when(came, f.unix_micros("at"))).alias("first_at"),
                f.max(f.when(came, f.unix_micros("at"))).alias("last_at"),
                f.min_by("kind", "seq").alias("first_kind"),
                f.min(f.unix_micros("at")).alias("first_event_at"),
            )
            .orderBy("store", "queue")
            .collect()
        )
        return [
            Arrived(
                row.store, row.queue, row.messages, row.with_payload,
                _moment(row.first_at), _moment(row.last_at),
                row.first_kind == "configured", _moment(row.first_event_at) or _BEGINNING,
            )
            for row in found
        ]  # fmt: skip

    def messages(self, queues: Collection[str]) -> DataFrame:
        """Those that have a payload, in the order in which they came."""
        from pyspark.sql import functions as f

        rows = self._rows(queues).where(_came() & f.col("value").isNotNull())
        if self._in_turn:
            turns = f.array(*(f.lit(store) for store in self._stores))
            ordered = rows.orderBy(f.array_position(turns, f.col("store")), "shard", "seq")
        else:
            ordered = rows.orderBy("at", "store", "shard", "seq")
        return ordered.select("queue", "message_id", "value", "detail")

    def holes(self, arrived: Iterable[Arrived], queues: Collection[str]) -> list[Hole]:
        """Where events of these queues, or of all, are missing in the window."""
        return [*self._beginnings(arrived), *self._gaps(queues)]

    # --- what is missing --------------------------------------------------------------------------
    def _beginnings(self, arrived: Iterable[Arrived]) -> Iterable[Hole]:
        """Events before the first one that the lake has, if that is inside the window.

        They were trimmed before the first run, or the table's retention has let them go.
        """
        firsts = [self._first(store) for store in self._stores]
        begun: set[str] = set()
        for came in sorted(arrived, key=lambda came: self._stores.index(came.store)):
            if self._in_turn and came.queue in begun:
                # It goes on from what it has under the name before.
                continue
            begun.add(came.queue)
            place = self._stores.index(came.store)
            known = firsts[0 if self._in_turn else place : place + 1]
            first = min((each for each in known if each is not None), default=None)
            if not came.from_the_start and first is not None and self._window.since < first:
                yield Hole(came.queue, self._window.since, came.first_event_at)

    def _first(self, store: str) -> datetime | None:
        files = self._files_of(store)
        return min((first for _, _, _, first in files), default=None)

    def _gaps(self, queues: Collection[str]) -> Iterable[Hole]:
        table = self._lake.table(GAPS.name)
        if table is None:
            return
        names = ("store", "queue", "after", "upto", "noticed_at")
        for gap in read_columns(table, names, GAPS.moment).to_pylist():
            if gap["store"] not in self._stores or (queues and gap["queue"] not in queues):
                continue
            began = self._last_until(gap["store"], gap["after"])
            ended = min(self._first_after(gap["store"], gap["upto"]), gap["noticed_at"])
            if self._window.touches(began, ended):
                yield Hole(gap["queue"], began, ended)

    def _last_until(self, store: str, seq: int) -> datetime:
        """When the last event was that is not after this seq. One file is read."""
        before = [file for file in self._files_of(store) if file[1] <= seq]
        if not before:
            return _BEGINNING
        name = max(before, key=lambda file: file[1])[0]
        return self._moment_in(name, f"store = '{store}' AND seq <= {seq}", last=True)

    def _first_after(self, store: str, seq: int) -> datetime:
        """When the first event was that is after this seq; now, if there is none yet."""
        after = [file for file in self._files_of(store) if file[2] > seq]
        if not after:
            return datetime.now(UTC)
        name = min(after, key=lambda file: file[2])[0]
        return self._moment_in(name, f"store = '{store}' AND seq > {seq}", last=False)

    def _moment_in(self, file: str, which: str, *, last: bool) -> datetime:
        from pyspark.sql import functions as f

        at = (f.max if last else f.min)(f.unix_micros("at"))
        rows = read_files(self._spark, self._events, [file]).where(which)
        (found,) = rows.agg(at.alias("at")).collect()
        return _moment(found.at) or (_BEGINNING if last else datetime.now(UTC))

    # --- reading ----------------------------------------------------------------------------------
    def _rows(self, queues: Collection[str]) -> DataFrame:
        from pyspark.sql import functions as f

        rows = read_files(self._spark, self._events, self.files)
        chosen: Column = self._window.of_rows() & f.col("store").isin(*self._stores)
        if queues:
            chosen &= f.col("queue").isin(*queues)
        return rows.where(chosen)

    def _files_of(self, store: str) -> list[tuple[str, int, int, datetime]]:
        """The files that may have events of a store: name, first and last seq, first moment."""
        listed = self._events.file_list()
        if not listed.num_rows:
            return []
        here = pc.and_(
            pc.less_equal(listed["min.store"], store), pc.greater_equal(listed["max.store"], store)
        )
        rows = listed.filter(pc.fill_null(here, True)).select(
            ["path", "min.seq", "max.seq", f"min.{EVENTS.moment}"]
        )
        return [tuple(row.values()) for row in rows.to_pylist()]


def _came() -> Column:
    """That a message came; not one that a replay put, which is there by its first coming."""
    from pyspark.sql import functions as f

    copy_of = f.get_json_object("detail", f"$.headers['{REPLAY_OF}']")
    return f.col("kind").isin(*ARRIVALS) & copy_of.isNull()


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else datetime.fromtimestamp(micros / 1_000_000, UTC)
