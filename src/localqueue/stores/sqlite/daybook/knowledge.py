"""What the entries of the present generation come to: who is next, and who holds what."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from itertools import groupby, repeat
from typing import Any

from localqueue.stores.sqlite.daybook.entries import Entry, Leases, Puts
from localqueue.stores.sqlite.daybook.line import Line
from localqueue.stores.sqlite.daybook.run import Run
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.verbs.ack_plain import is_run


class Knowledge:
    """Of the tables and the book together; right as long as nobody writes to the tables."""

    def __init__(self, db: sqlite3.Connection, since: float) -> None:
        self._db = db
        self._since = since
        """The time of the tables."""
        self._lines: dict[int, Line] = {}
        self._held: dict[int, Run] = {}
        """By message: the leases that stand in the book."""
        self._gone: set[int] = set()
        """Messages whose leases are ended in the book: the tables may still have them."""
        self._ends_first = float("inf")
        """When the first of the leases in the book is over."""

    def learn(self, entry: Entry) -> None:
        """An entry was noted."""
        kind = type(entry)
        if kind is Puts:
            self.line(entry.queue).add(entry)  # type: ignore[arg-type]
        elif kind is Leases:
            seq, at, queue, numbers, until, worker, _, _ = entry  # type: ignore[misc]
            _, _, positions, created_at, _ = self.line(queue).take(len(numbers))
            run = Run(queue, numbers, seq, created_at, positions, at, worker)
            if len(numbers) == 1:
                self._held[numbers[0]] = run
            else:
                self._held.update(zip(numbers, repeat(run), strict=False))
            if until < self._ends_first:
                self._ends_first = until
        else:
            held = self._held
            for number in entry[3]:
                held.pop(number, None)  # type: ignore[arg-type]
            self._gone.update(entry[3])  # type: ignore[arg-type]

    def go_on(self, since: float) -> None:
        """All that was noted is in the tables now, and nothing else has changed there."""
        self._since = since
        self._gone.clear()
        for line in self._lines.values():
            line.go_on(since)

    def line(self, queue: int) -> Line:
        line = self._lines.get(queue)
        if line is None:
            line = self._lines[queue] = Line(self._db, queue, self._since)
        return line

    def is_anything_due(self, line: Line, now: float) -> bool:
        """Whether time has changed something that only the tables can deal with."""
        return now >= self._ends_first or line.is_anything_due(now)

    def leases_of(self, queue: int, numbers: Sequence[int]) -> Mapping[int, Run]:
        """By message, the leases of these whose ends can be noted; perhaps others as well."""
        return self._held if numbers[0] in self._held else self._in_the_tables(queue, numbers)

    def _in_the_tables(self, queue: int, numbers: Sequence[int]) -> dict[int, Run]:
        """First leases of plain messages that were posted, by message."""
        held: dict[int, Run] = {}
        if not self._gone.isdisjoint(numbers):
            return held
        if is_run(numbers):
            rows = self._db.execute(SQL.first_leases_of_run, (queue, numbers[0], numbers[-1]))
        else:
            rows = self._db.execute(SQL.first_leases, (queue, json.dumps(numbers)))
        together = groupby(enumerate(rows.fetchall()), _lease_of)
        for (first, leased_at, worker), found in together:
            own, created_at, positions = zip(*[row[:3] for _, row in found], strict=True)
            run = Run(queue, own, first + len(held), created_at, positions, leased_at, worker)
            held.update(zip(own, repeat(run), strict=False))
        return held


def _lease_of(row: tuple[int, tuple[Any, ...]]) -> tuple[int, float, str | None]:
    """The same for all that were leased in one call: what the first of them would have as token."""
    place, (_, _, _, token, leased_at, worker) = row
    return token - place, leased_at, worker
