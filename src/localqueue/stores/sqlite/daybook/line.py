"""Who is next in a queue: rows of the tables, then what was put into the daybook since."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice, takewhile
from operator import itemgetter

from localqueue.stores.sqlite.daybook.entries import Puts
from localqueue.stores.sqlite.rows import plain_seals
from localqueue.stores.sqlite.sql import SQL

AT_ONCE = 64
"""Rows that are read ahead: one statement for each message would cost more than its lease."""


Next = tuple[int, int, float, float, bytes]
"""A message that waits, and that nothing has happened to: its number, rank, position, when it was
created, its value."""
_IS_PLAIN = itemgetter(-1)
Columns = tuple[Sequence[int], Sequence[int], Sequence[float], Sequence[float], Sequence[bytes]]
"""The fields of some of them, a sequence for each."""
NONE: Columns = ((), (), (), (), ())


def _columns(messages: Iterable[Next]) -> Columns:
    columns: Columns = tuple(zip(*messages, strict=True))  # type: ignore[assignment]
    return columns


class Line:
    """The messages of one queue in the order of delivery, as far as they are plain.

    Right as long as nobody writes to the tables.
    """

    def __init__(self, db: sqlite3.Connection, queue: int, since: float) -> None:
        self._db = db
        self._queue = queue
        self._since = since
        """The time of the tables: whatever is put into the book comes after it."""
        self._waiting: deque[Next] = deque()
        self._late: list[Puts] = []
        """Put into the book; their turn comes when no more rows are left in the tables."""
        self._last: Next | None = None
        self._ends = False
        """Whether the tables have no more rows that are plain."""
        self._is_blocked = False
        """Whether the next one is one that only the tables can deal with."""
        self._due: float | None = None

    def is_anything_due(self, now: float) -> bool:
        """Whether time has changed something in the tables."""
        if self._due is None:
            (due,) = self._db.execute(SQL.next_change, (self._queue,)).fetchone()
            self._due = float("inf") if due is None else due
        return now >= self._due

    def go_on(self, since: float) -> None:
        """What was put into the book has rows now, and comes after those that were read."""
        self._since = since
        self._late.clear()
        self._due = None

    def first(self, n: int, after: int) -> Columns | None:
        """Up to so many, after those that others are about to take; fewer when there are no more.

        None when only the tables can tell who comes next.
        """
        while len(self._waiting) < n + after and not self._ends:
            self._read(n + after)
        there = len(self._waiting) - after
        if there < n:
            if self._is_blocked:
                return None
            if there <= 0:
                return NONE
        if n == 1:
            number, rank, pos, created_at, body = self._waiting[after]
            return (number,), (rank,), (pos,), (created_at,), (body,)
        return _columns(islice(self._waiting, after, after + n))

    def add(self, puts: Puts) -> None:
        self._late.append(puts)
        if self._ends and not self._is_blocked:
            self._let_in()

    def take(self, n: int) -> Columns:
        """They are leased."""
        if n == 1:
            number, rank, pos, created_at, body = self._waiting.popleft()
            return (number,), (rank,), (pos,), (created_at,), (body,)
        return _columns([self._waiting.popleft() for _ in range(n)])

    def _let_in(self) -> None:
        """The tables have no more: those that were put into the book come next."""
        for seq, at, _, bodies in self._late:
            for number, body in enumerate(bodies, seq):
                self._waiting.append((number, 0, at, at, body))
        self._late.clear()

    def _read(self, wanted: int) -> None:
        if self._last is None:
            # No more than needed: where the next one is not plain, all of it was in vain.
            limit = wanted
            rows = self._db.execute(SQL.plain_messages, (self._queue, limit)).fetchall()
        else:
            limit = max(AT_ONCE, wanted - len(self._waiting))
            number, rank, pos, _, _ = self._last
            here = (self._queue, rank, pos)
            rows = self._db.execute(SQL.plain_messages_beside, (*here, number, limit)).fetchall()
            if len(rows) < limit:
                rest = (*here, limit - len(rows))
                rows += self._db.execute(SQL.plain_messages_after, rest).fetchall()
        found = len(rows)
        rows = [*takewhile(_IS_PLAIN, rows)]
        if rows:
            numbers, ranks, positions, created_at, checksums, bodies, _ = zip(*rows, strict=True)
            sound = plain_seals(bodies, numbers, self._queue) == [*checksums]
            if not sound or not self._is_in_order(ranks[-1], positions[-1]):
                self._ends = self._is_blocked = True
                return
            self._waiting.extend(zip(numbers, ranks, positions, created_at, bodies, strict=True))
            self._last = self._waiting[-1]
        if len(rows) < found:
            self._ends = self._is_blocked = True
        elif found < limit:
            self._ends = True
            self._let_in()

    def _is_in_order(self, rank: int, pos: float) -> bool:
        """Whether it comes before everything in the book."""
        return rank < 0 or (rank == 0 and pos <= self._since)
