"""Who is next in a queue: rows of the tables, then what was put into the daybook since."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import repeat, takewhile
from operator import itemgetter
from typing import Any

from localqueue.stores.sqlite.daybook.entries import Puts
from localqueue.stores.sqlite.rows import plain_seals
from localqueue.stores.sqlite.sql import SQL

AT_ONCE = 64
"""Rows that are read ahead: one statement for each message would cost more than its lease."""
MOST_KEPT = 1024
"""Messages: those that were taken go when there are so many, because the others move then; those
that wait, and have rows, are read again."""
_IS_PLAIN = itemgetter(-1)
Columns = tuple[Sequence[int], Sequence[int], Sequence[float], Sequence[float], Sequence[bytes]]
"""Messages that wait, and that nothing has happened to: their numbers, ranks, positions, when they
were created, and values."""
NONE: Columns = ((), (), (), (), ())


class Line:
    """The messages of one queue in the order of delivery, as far as they are plain.

    Right as long as nobody writes to the tables. Kept as columns: a hundred that are leased are
    five slices then.
    """

    def __init__(self, db: sqlite3.Connection, queue: int, since: float) -> None:
        self._db = db
        self._queue = queue
        self._since = since
        """The time of the tables: whatever is put into the book comes after it."""
        self._numbers: list[int] = []
        self._ranks: list[int] = []
        self._positions: list[float] = []
        self._created_at: list[float] = []
        self._bodies: list[bytes] = []
        self._next = 0
        """The place of the first that waits."""
        self._late: list[Puts] = []
        """Put into the book; their turn comes when no more rows are left in the tables."""
        self._last: tuple[int, int, float] | None = None
        """Number, rank and position of the last one that was read."""
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
        end = self._next + MOST_KEPT
        if len(self._numbers) > end:
            self._last = self._numbers[end - 1], self._ranks[end - 1], self._positions[end - 1]
            self._forget(slice(end, None))
            self._ends = self._is_blocked = False

    def first(self, n: int, after: int) -> Columns | None:
        """Up to so many, after those that others are about to take; fewer when there are no more.

        None when only the tables can tell who comes next.
        """
        while len(self._numbers) - self._next < n + after and not self._ends:
            self._read(n + after)
        there = len(self._numbers) - self._next - after
        if there < n:
            if self._is_blocked:
                return None
            if there <= 0:
                return NONE
        return self._slice(self._next + after, n)

    def add(self, puts: Puts) -> None:
        self._late.append(puts)
        if self._ends and not self._is_blocked:
            self._let_in()

    def take(self, n: int) -> Columns:
        """They are leased."""
        taken = self._slice(self._next, n)
        self._next += n
        if self._next >= MOST_KEPT:
            self._forget(slice(0, self._next))
            self._next = 0
        return taken

    def _forget(self, places: slice) -> None:
        columns: Sequence[list[Any]] = (
            self._numbers, self._ranks, self._positions, self._created_at, self._bodies,
        )  # fmt: skip
        for column in columns:
            del column[places]

    def _slice(self, first: int, n: int) -> Columns:
        end = first + n
        return (
            self._numbers[first:end], self._ranks[first:end], self._positions[first:end],
            self._created_at[first:end], self._bodies[first:end],
        )  # fmt: skip

    def _let_in(self) -> None:
        """The tables have no more: those that were put into the book come next."""
        for seq, at, _, bodies in self._late:
            n = len(bodies)
            self._numbers += range(seq, seq + n)
            self._ranks += repeat(0, n)
            self._positions += repeat(at, n)
            self._created_at += repeat(at, n)
            self._bodies += bodies
        self._late.clear()

    def _read(self, wanted: int) -> None:
        if self._last is None:
            # No more than needed: where the next one is not plain, all of it was in vain.
            limit = wanted
            rows = self._db.execute(SQL.plain_messages, (self._queue, limit)).fetchall()
        else:
            limit = max(AT_ONCE, wanted - len(self._numbers) + self._next)
            number, rank, pos = self._last
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
            self._numbers += numbers
            self._ranks += ranks
            self._positions += positions
            self._created_at += created_at
            self._bodies += bodies
            self._last = numbers[-1], ranks[-1], positions[-1]
        if len(rows) < found:
            self._ends = self._is_blocked = True
        elif found < limit:
            self._ends = True
            self._let_in()

    def _is_in_order(self, rank: int, pos: float) -> bool:
        """Whether it comes before everything in the book."""
        return rank < 0 or (rank == 0 and pos <= self._since)
