"""A SQLite store as Spark's driver sees it: its queues and its journal, by questions."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from pyspark.sql.datasource import Filter
from pyspark.sql.types import StructType

from localqueue.errors import ConfigurationError, JournalForeign, StoreUnsupported
from localqueue.spark.options import Options
from localqueue.spark.read.scan import Era, ReadTask
from localqueue.spark.read.schema import columns_of, payload_fields
from localqueue.spark.read.sqlite.look import Look, Queue
from localqueue.spark.read.sqlite.plan import Plan
from localqueue.spark.read.where import parse_where
from localqueue.stores.open import open_store
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import DEAD, ENQUEUED
from localqueue.stores.sqlite.store import SQLiteQueueStore

_AT = "SELECT seq, at FROM event WHERE seq >= ? ORDER BY seq LIMIT 1"
# The log of a topic that copies ends where it began to; some subscribers may not be there yet.
_READS_A_LOG = "SELECT queue FROM subscription WHERE until IS NULL OR position < until"
_TRIMS = "SELECT queue, trimmed FROM kept WHERE trimmed > 0"


class SQLiteSource:
    """See ``scan.Source``. It holds one connection, which reads in short transactions."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        payload_fields(options, schema)
        self._where: list[Filter] = []
        if options.where is not None:
            self._where = parse_where(options.where, columns_of(options))
        store = open_store(options.url)
        if not isinstance(store, SQLiteQueueStore):
            raise StoreUnsupported(f"{options.masked_url} is not a SQLite file")
        self._look = Look(store.path)
        try:
            with self._look.snapshot() as db:
                self._chosen(db)
        except BaseException:
            self._look.close()
            raise

    @property
    def store_id(self) -> str:
        return self._look.store_id

    def eras(self) -> list[Era]:
        return [Era(bits, first) for first, bits in self._look.identity_rows]

    @property
    def is_copy(self) -> bool:
        return self._look.is_copy

    # --- the journal ------------------------------------------------------------------------------
    def journal_oldest(self) -> int:
        with self._look.snapshot() as db:
            first = db.execute(SQL.first_event).fetchone()
        return first[0] - 1 if first else 0

    def journal_end(self) -> int:
        with self._look.snapshot() as db:
            return _newest(db)

    def make_lasting(self) -> None:
        self._look.make_lasting()

    def journal_at(self, moment: float) -> int:
        """Events are in the order of their times, so it takes few steps."""
        with self._look.snapshot() as db:
            first = db.execute(SQL.first_event).fetchone()
            if first is None:
                return 0
            low, high = first[0] - 1, _newest(db)
            while low < high:
                middle = (low + high + 1) // 2
                # The first event from there on; of a gap it is the one that ends it.
                seq, at = db.execute(_AT, (middle,)).fetchone()
                if at < moment:
                    low = seq
                else:
                    high = middle - 1
        return int(low)

    def journal_step(self, after: int, rows: int, upto: int) -> int:
        with self._look.snapshot() as db:
            found = db.execute(
                f"SELECT seq FROM event WHERE {self._events(db)} ORDER BY seq LIMIT 1 OFFSET ?",
                (after, upto, rows),
            ).fetchone()
        return upto if found is None else found[0] - 1

    def journal_count(self, after: int, upto: int) -> int:
        with self._look.snapshot() as db:
            found = db.execute(
                f"SELECT count(*) FROM event WHERE {self._events(db)}", (after, upto)
            ).fetchone()
        return int(found[0])

    def position(self, seq: int) -> str:
        return self._look.identity.public(seq)

    def seq_of(self, position: str) -> int:
        seq = self._look.identity.seq(position)
        if seq is None:
            raise JournalForeign(f"the journal position {position!r} does not belong to this store")
        return seq

    # --- what the chosen queues keep --------------------------------------------------------------
    def trims(self) -> dict[str, int]:
        with self._look.snapshot() as db:
            upto = dict(db.execute(_TRIMS).fetchall())
            chosen = self._chosen(db)
        return {
            queue.name: upto[queue.number]
            for queue in chosen
            if queue.number in upto and (queue.settings.journal or self._options.queues)
        }

    def without_journal(self) -> list[str]:
        # Of all queues together those without one are left out by themselves.
        if not self._options.queues:
            return []
        with self._look.snapshot() as db:
            return [queue.name for queue in self._chosen(db) if not queue.settings.journal]

    def in_topic_logs(self) -> list[str]:
        with self._look.snapshot() as db:
            readers = {number for (number,) in db.execute(_READS_A_LOG)}
            return [
                queue.name
                for queue in self._chosen(db)
                if queue.number in readers or queue.settings.fanout in ("cursor", "hybrid")
            ]

    def without_payloads(self) -> list[str]:
        with self._look.snapshot() as db:
            return [queue.name for queue in self._chosen(db) if not queue.settings.keeps_payloads]

    # --- plans ------------------------------------------------------------------------------------
    def plan_messages(self, filters: Sequence[Filter] = ()) -> list[ReadTask]:
        with self._look.snapshot() as db:
            return self._plan(db).messages([*self._where, *filters])

    def plan_journal(
        self, after: int, upto: int, filters: Sequence[Filter] = (), partitions: int | None = None
    ) -> list[ReadTask]:
        with self._look.snapshot() as db:
            return self._plan(db).journal(after, upto, [*self._where, *filters], partitions)

    def plan_enqueued(self, after: int, upto: int, partitions: int | None = None) -> list[ReadTask]:
        kind = self._kind()
        if kind is None:
            return self.plan_journal(after, upto, partitions=partitions)
        with self._look.snapshot() as db:
            return self._plan(db).arrivals(after, upto, kind, partitions)

    def close(self) -> None:
        self._look.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _plan(self, db: sqlite3.Connection) -> Plan:
        return Plan(db, self._look, self._options, self._schema, self._chosen(db))

    def _chosen(self, db: sqlite3.Connection) -> list[Queue]:
        """The queues as they are now; ConfigurationError when one of those named is not there."""
        queues = self._look.queues(db)
        wanted = self._options.queues
        if not wanted:
            return queues
        by_name = {queue.name: queue for queue in queues}
        for name in wanted:
            if name not in by_name:
                there = ", ".join(sorted(by_name)) or "none"
                raise ConfigurationError(
                    f"there is no queue {name!r} in {self._look.file.path}; there are: {there}"
                )
        return [by_name[name] for name in wanted]

    def _events(self, db: sqlite3.Connection) -> str:
        """The condition that an event is one of this content, in a range."""
        parts = ["seq > ? AND seq <= ?"]
        if self._options.queues:
            numbers = ", ".join(str(queue.number) for queue in self._chosen(db))
            parts.append(f"queue IN ({numbers})")
        kind = self._kind()
        if kind is not None:
            parts.append(kind)
        return " AND ".join(parts)

    def _kind(self) -> str | None:
        """What a message's arrival looks like in the journal; None for the journal itself."""
        match self._options.content:
            case "messages":
                return f"kind = {ENQUEUED}"
            case "dead_letters":
                return f"to_state = {DEAD} AND from_state IS NOT {DEAD}"
        return None


def _newest(db: sqlite3.Connection) -> int:
    found = db.execute(SQL.last_seq).fetchone()
    return int(found[0]) if found else 0
