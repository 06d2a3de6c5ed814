"""How a read of a SQLite file is divided into tasks, about one per core."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from localqueue.errors import ConfigurationError
from localqueue.spark.cores import cores
from localqueue.spark.options import Options
from localqueue.spark.read import journal_columns, message_columns
from localqueue.spark.read.filters import Column, Identifier, Word, column_of, pushed, text
from localqueue.spark.read.ranges import Range, cut, populated
from localqueue.spark.read.scan import ReadTask
from localqueue.spark.read.schema import chosen_columns
from localqueue.spark.read.sqlite.look import Look, Queue
from localqueue.spark.read.sqlite.tables import ARRIVALS, EVENTS, MESSAGES, Table, publications
from localqueue.spark.read.sqlite.task import Span, SQLiteTask
from localqueue.stores.sqlite.counts import Counts
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import DEAD, HELD, STATE_NAMES

FEW = 20_000
"""Up to so many rows one task is faster than several."""
MOST_ROWS = 32_768
"""Of a range: it is read in one transaction, which keeps the -wal from starting anew."""
LEAST_ROWS = 256
RANGE_BYTES = 16 * 1024 * 1024
SCARCE = 8
"""When one row in so many is wanted, those are found by an index instead of going through all."""
RESIDUES = 64
"""Rows that an index finds have no ranges of ids: they are divided by what is left of the id."""

# As one SELECT min(id), max(id) it would go through all rows.
_ENDS = "SELECT (SELECT min(id) FROM message), (SELECT max(id) FROM message)"
_UNREAD = """
SELECT s.topic, s.position + 1, min(coalesce(s.until, t.last), t.last)
FROM subscription AS s JOIN topic AS t ON t.queue = s.topic WHERE s.queue = ?
"""
_PUBLISHED = "SELECT seq FROM publication WHERE topic = ? AND offset >= ? ORDER BY offset LIMIT 1"


class Plan:
    """Made inside a snapshot of the file, for the queues that were chosen."""

    def __init__(
        self,
        db: sqlite3.Connection,
        look: Look,
        options: Options,
        schema: StructType,
        chosen: Sequence[Queue],
    ) -> None:
        self._db = db
        self._look = look
        self._options = options
        self._schema = schema
        self._chosen = chosen
        self._names = {queue.number: queue.name for queue in chosen}

    # --- messages ---------------------------------------------------------------------------------
    def messages(self, filters: Sequence[Filter]) -> list[ReadTask]:
        """Rows of messages up to the newest one, and what subscribers have not read."""
        columns = self._columns()
        conditions = _conditions(filters, columns)
        states = _chosen_numbers("state", columns, filters)
        if self._options.content == "dead_letters":
            conditions.append(f"{{state}} = {DEAD}")
            states &= {DEAD}
        queues = _chosen_numbers("queue", columns, filters)
        if self._options.queues:
            conditions.append(f"{{queue}} IN ({_listed(self._names)})")
        counts = self._counts()
        total = sum(map(sum, counts.values()))
        wanted = sum(counts[queue][state] for queue in queues for state in states)
        low, high = self._db.execute(_ENDS).fetchone()
        spans: list[Span] = []
        if low is None:
            low, high = 0, 0
        elif any(isinstance(columns.get(column_of(one) or ""), Identifier) for one in filters):
            where = _all_of([*conditions, f"+{{id}} <= {high}"])
            spans.append(Span(((MESSAGES, where),), ((0, 0),)))
        elif wanted * SCARCE < total:
            spans += self._by_index(conditions, queues, states, high, wanted)
        else:
            parts = populated((low, high), total, *self._neighbours("message", "id"))
            pieces = self._pieces(total, self._row_bytes(total))
            where = _all_of(["{id} BETWEEN {low} AND {high}", *conditions])
            spans.append(Span(((MESSAGES, where),), tuple(cut(parts, pieces))))
        for queue in self._chosen:
            if queue.is_subscriber and queue.number in queues and states - {DEAD}:
                spans += self._unread(queue, conditions, high)
        return self._tasks(spans, rows=total)

    def _by_index(
        self,
        conditions: Iterable[str],
        queues: Iterable[int],
        states: Iterable[int],
        high: int,
        wanted: int,
    ) -> list[Span]:
        residues = cut([(0, RESIDUES - 1)], self._pieces(wanted, self._row_bytes(wanted)))
        shared = [
            f"{{queue}} IN ({_listed(queues)})",
            f"+{{id}} <= {high}",
            f"{{id}} % {RESIDUES} BETWEEN {{low}} AND {{high}}",
            *conditions,
        ]
        # All states in one statement: a message that goes from one to another meanwhile would be
        # found in both, or in none.
        tables = tuple((MESSAGES, _all_of([_INDEXED[state], *shared])) for state in sorted(states))
        return [Span(tables, tuple(residues))] if tables else []

    def _unread(self, queue: Queue, conditions: Sequence[str], high: int) -> list[Span]:
        """Publications, by their seq; one that becomes a message meanwhile is found as that."""
        found = self._db.execute(_UNREAD, (queue.number,)).fetchone()
        if found is None or found[1] > found[2]:
            return []
        topic, first, last = found
        rows = last - first + 1
        starts = [
            self._db.execute(_PUBLISHED, (topic, offset)).fetchone()[0]
            for offset, _ in cut([(first, last)], self._pieces(rows, self._row_bytes(rows)))
        ]
        (end,) = self._db.execute(_PUBLISHED, (topic, last)).fetchone()
        ranges = zip(starts, [*(start - 1 for start in starts[1:]), end], strict=True)
        suffix = text(f":{queue.name.rpartition('.')[2]}")
        number = queue.number
        unread = [
            f"p.topic = {topic} AND p.seq BETWEEN {{low}} AND {{high}}",
            f"p.offset > (SELECT position FROM subscription WHERE queue = {number})",
            f"p.offset NOT IN (SELECT offset FROM skipped WHERE queue = {number})",
        ]
        made_since = [
            f"{{queue}} = {number} AND +{{id}} > {high}",
            "{origin} BETWEEN {low} AND {high}",
        ]
        return [
            Span(
                (
                    (publications(number, str(suffix)), _all_of([*unread, *conditions])),
                    (MESSAGES, _all_of([*made_since, *conditions])),
                ),
                tuple(ranges),
            )
        ]

    # --- the journal ------------------------------------------------------------------------------
    def journal(
        self, after: int, upto: int, filters: Sequence[Filter], partitions: int | None
    ) -> list[ReadTask]:
        conditions = _conditions(filters, self._columns())
        low, high = _seq_bounds(filters, after + 1, upto)
        return self._events(EVENTS, (low, high), conditions, partitions)

    def arrivals(
        self, after: int, upto: int, condition: str, partitions: int | None
    ) -> list[ReadTask]:
        return self._events(ARRIVALS, (after + 1, upto), [condition], partitions)

    def _events(
        self, table: Table, ends: Range, conditions: Sequence[str], partitions: int | None
    ) -> list[ReadTask]:
        if ends[0] > ends[1]:
            return []
        if self._options.queues:
            conditions = [*conditions, f"{{queue}} IN ({_listed(self._names)})"]
        where = _all_of(["e.seq BETWEEN {low} AND {high}", *conditions])
        (kept,) = self._db.execute("SELECT total(n) FROM kept").fetchone()
        # What came after the last fold is not counted there.
        rows = min(ends[1] - ends[0] + 1, int(kept) + FEW)
        parts = populated(ends, rows, *self._neighbours("event", "seq"))
        ranges = cut(parts, self._pieces(rows, 0, partitions))
        return self._tasks([Span(((table, where),), tuple(ranges))], rows, partitions)

    # --- dividing ---------------------------------------------------------------------------------
    def _tasks(
        self, spans: Sequence[Span], rows: int, partitions: int | None = None
    ) -> list[ReadTask]:
        """Ranges are dealt out like cards: some have more rows than others."""
        n = self._partitions(rows, partitions)
        hands: list[list[Span]] = [[] for _ in range(n)]
        dealt = 0
        for span in spans:
            for at in range(min(n, len(span.ranges))):
                hands[(dealt + at) % n].append(Span(span.tables, span.ranges[at::n]))
            dealt += len(span.ranges)
        return [self._task(hand) for hand in hands if hand]

    def _task(self, spans: Iterable[Span]) -> ReadTask:
        return SQLiteTask(
            self._look.file,
            tuple(spans),
            self._options.content == "journal",
            chosen_columns(self._options),
            self._look.identity_rows,
            self._names,
            self._schema.json(),
            self._options.mode,
        )

    def _columns(self) -> dict[str, Column]:
        """The columns by which the file can choose."""
        is_journal = self._options.content == "journal"
        made_by = journal_columns.filterable if is_journal else message_columns.filterable
        return made_by(self._look.identity, self._names)

    def _partitions(self, rows: int, asked: int | None = None) -> int:
        asked = asked or self._options.min_partitions
        return asked or (1 if rows <= FEW else cores())

    def _pieces(self, rows: int, row_bytes: int, partitions: int | None = None) -> int:
        """How many ranges: few enough rows in each, and as many for every task."""
        fitting = RANGE_BYTES // max(1, row_bytes)
        pieces = -(-rows // max(LEAST_ROWS, min(MOST_ROWS, fitting)))
        n = self._partitions(rows, partitions)
        return -(-max(1, pieces) // n) * n

    def _counts(self) -> dict[int, list[int]]:
        """How many messages each queue of the file has in each state."""
        counts = Counts()
        newest = self._db.execute(SQL.last_seq).fetchone()
        upto = newest[0] if newest else 0
        return {
            queue.number: counts.states(self._db, queue.number, upto)
            for queue in self._look.queues(self._db)
        }

    def _row_bytes(self, rows: int) -> int:
        """What a row takes of the file, at most; the journal and indexes are counted with it."""
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        (size,) = self._db.execute("PRAGMA page_size").fetchone()
        return int(pages * size // max(1, rows))

    def _neighbours(
        self, table: str, number: str
    ) -> tuple[Callable[[int], int | None], Callable[[int], int | None]]:
        def before(limit: int) -> int | None:
            found = self._db.execute(
                f"SELECT max({number}) FROM {table} WHERE {number} < ?", (limit,)
            )
            return _number(found.fetchone())

        def after(limit: int) -> int | None:
            found = self._db.execute(
                f"SELECT min({number}) FROM {table} WHERE {number} >= ?", (limit,)
            )
            return _number(found.fetchone())

        return before, after


# Each state has its index; held messages have that of their keys.
_INDEXED = {
    state: f"{{state}} = {state}"
    if state != HELD
    else f"{{key}} IS NOT NULL AND {{state}} < {DEAD} AND {{state}} = {HELD}"
    for state in range(len(STATE_NAMES))
}


def _conditions(filters: Iterable[Filter], columns: Mapping[str, Column]) -> list[str]:
    return [_condition(one, columns) for one in filters]


def _condition(given: Filter, columns: Mapping[str, Column]) -> str:
    found = pushed(given, columns)
    if found is None:
        raise ConfigurationError(
            f"the store cannot answer {given}; it can for {', '.join(columns)}, and for an id by"
            " = and IN. Filter the DataFrame instead"
        )
    return found


def _chosen_numbers(
    name: str, columns: Mapping[str, Column], filters: Iterable[Filter]
) -> set[int]:
    """The numbers of a column of words that all filters on it take."""
    column = columns[name]
    assert isinstance(column, Word)
    numbers = set(column.words)
    for one in filters:
        taken = column.numbers(one) if column_of(one) == name else None
        numbers &= numbers if taken is None else set(taken)
    return numbers


def _seq_bounds(filters: Iterable[Filter], low: int, high: int) -> Range:
    """The range as far as filters on seq leave it: only there the journal is gone through."""
    for one in filters:
        match one:
            case GreaterThan(("seq",), int(seq)):
                low = max(low, seq + 1)
            case GreaterThanOrEqual(("seq",), int(seq)):
                low = max(low, seq)
            case LessThan(("seq",), int(seq)):
                high = min(high, seq - 1)
            case LessThanOrEqual(("seq",), int(seq)):
                high = min(high, seq)
            case EqualTo(("seq",), int(seq)):
                low, high = max(low, seq), min(high, seq)
            case In(("seq",), seqs) if seqs and all(type(seq) is int for seq in seqs):
                low, high = max(low, min(seqs)), min(high, max(seqs))
    return low, high


def _all_of(conditions: Iterable[str]) -> str:
    return " AND ".join(conditions)


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def _number(row: tuple[int | None] | None) -> int | None:
    return None if row is None else row[0]
