"""Posting: what a daybook's entries come to, brought into the tables."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count, repeat
from typing import Any

from localqueue.stores.sqlite.daybook.entries import Acks, Entry, Leases, Puts
from localqueue.stores.sqlite.rows import plain_seal, plain_seals
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import ACKED, ENQUEUED, INFLIGHT, LEASED, READY
from localqueue.stores.sqlite.verbs.ack_plain import is_run
from localqueue.stores.sqlite.verbs.alike import AT_ONCE
from localqueue.stores.sqlite.view import Transaction

MANY = 8
"""Events of one call that are worth a statement of their own."""
_Shape = tuple[int, int | None, int | None, str | None]


def post(tx: Transaction, entries: Sequence[Entry]) -> None:
    """Write what they come to: all their events, but no row of a message that is gone again."""
    net = _Net(entries)
    for (queue, left, entered, worker), n in net.moves.items():
        tx.reserve(n, queue, left, entered, worker)
    db = tx.db
    _write(db, SQL.add_plain_messages, net.born)
    for events in net.events:
        if type(events) is list:
            _write(db, SQL.add_noted_events, events)
        else:
            db.execute(*events)
    if net.leases:
        db.executemany(SQL.lease_plain_message, net.leases.values())
    if net.gone:
        if is_run(net.gone):
            db.execute(SQL.delete_run, (net.gone[0], net.gone[-1]))
        else:
            db.execute(SQL.delete_messages, (json.dumps(net.gone),))
    db.execute(SQL.write_mark, (tx.seq, "daybook"))


def _write(
    db: sqlite3.Connection, statement: Callable[[int], str], rows: Sequence[tuple[Any, ...]]
) -> None:
    """Many rows with each statement: a third less than one by one."""
    at = 0
    for n in AT_ONCE:
        while len(rows) - at >= n:
            values = chain.from_iterable(rows[at : at + n])
            db.execute(statement(n), (*values,))
            at += n


class _Net:
    """What entries come to."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.events: list[list[tuple[Any, ...]] | tuple[str, tuple[Any, ...]]] = []
        """In their order: rows, or a statement that makes them of the messages that are there."""
        self.moves: Counter[_Shape] = Counter()
        self.born: list[tuple[Any, ...]] = []
        """The rows of messages that were put and are still there."""
        self.leases: dict[int, tuple[Any, ...]] = {}
        """By message: the lease it is under."""
        self.gone: list[int] = []
        """Messages of the tables that are there no more."""
        self._first = entries[0].seq
        self._ended = {
            number for entry in entries if type(entry) is Acks for number in entry.numbers
        }
        for entry in entries:
            kind = type(entry)
            if kind is Puts:
                self._put(entry)  # type: ignore[arg-type]
            elif kind is Leases:
                self._lease(entry)  # type: ignore[arg-type]
            else:
                self._ack(entry)  # type: ignore[arg-type]

    def _put(self, entry: Puts) -> None:
        seq, at, queue, bodies = entry
        n = len(bodies)
        self.moves[queue, None, READY, None] += n
        if n == 1 and seq not in self._ended:
            body = bodies[0]
            self.born.append((seq, queue, at, plain_seal(body, seq, queue), body))
        elif self._ended.isdisjoint(numbers := range(seq, seq + n)):
            seals = plain_seals(bodies, numbers, queue)
            self.born += zip(numbers, repeat(queue), repeat(at), seals, bodies, strict=False)
        else:
            self._put_some(entry)
            return
        last = self.events[-1] if self.events else None
        first = seq
        if type(last) is tuple and last[0] is SQL.add_alike_events:
            first = last[1][0]
            self.events.pop()
        self.events.append((SQL.add_alike_events, (first, seq + n - 1)))

    def _put_some(self, entry: Puts) -> None:
        """Not all of them are still there."""
        seq, at, queue, bodies = entry
        for number, body in enumerate(bodies, seq):
            if number not in self._ended:
                self.born.append((number, queue, at, plain_seal(body, number, queue), body))
        self._add_events(
            (number, at, queue, number, None, ENQUEUED, None, READY, None, None, None, None, None)
            for number in range(seq, seq + len(bodies))
        )

    def _lease(self, entry: Leases) -> None:
        seq, at, queue, numbers, until, worker, liveness, note = entry
        n = len(numbers)
        self.moves[queue, READY, INFLIGHT, worker] += n
        if n == 1:
            number = numbers[0]
            self._add_event(
                (seq, at, queue, number, number, LEASED, READY, INFLIGHT, 1, worker, None, None,
                 None)
            )  # fmt: skip
        elif n >= MANY and is_run(numbers) and self._have_rows(numbers):
            run = (seq, at, worker, numbers[0], numbers[-1])
            self.events.append((SQL.add_lease_events_of_run, run))
        else:
            self._add_events(
                (token, at, queue, number, number, LEASED, READY, INFLIGHT, 1, worker, None, None,
                 None)
                for token, number in enumerate(numbers, seq)
            )  # fmt: skip
        if n > 1 and self._ended.issuperset(numbers):
            return
        for token, number in enumerate(numbers, seq):
            if number not in self._ended:
                self.leases[number] = token, until, worker, liveness, at, note, number

    def _ack(self, entry: Acks) -> None:
        first, at, queue, numbers, tokens, created_at, positions, leased_at, worker = entry
        n = len(numbers)
        self.moves[queue, INFLIGHT, None, None] += n
        if n == 1:
            number, pos = numbers[0], positions[0]
            self._add_event(
                (first, at, queue, number, tokens[0], ACKED, INFLIGHT, None, 1, worker,
                 created_at[0], leased_at, leased_at - pos if leased_at > pos else 0.0)
            )  # fmt: skip
            if number < self._first:
                self.gone.append(number)
            return
        if n >= MANY and is_run(numbers) and is_run(tokens) and self._have_rows(numbers):
            run = (first, at, tokens[0], leased_at, worker, numbers[0], numbers[-1])
            self.events.append((SQL.add_noted_acks_of_run, run))
        else:
            self._add_events(
                (seq, at, queue, number, token, ACKED, INFLIGHT, None, 1, worker, created,
                 leased_at, leased_at - pos if leased_at > pos else 0.0)
                for seq, number, token, created, pos in zip(
                    count(first), numbers, tokens, created_at, positions, strict=False
                )
            )  # fmt: skip
        self.gone += [number for number in numbers if number < self._first]

    def _have_rows(self, numbers: Sequence[int]) -> bool:
        """Whether all are in the table while events are written: rows go after that."""
        return numbers[-1] < self._first or self._ended.isdisjoint(numbers)

    def _add_event(self, event: tuple[Any, ...]) -> None:
        events = self.events
        if events and type(events[-1]) is list:
            events[-1].append(event)
        else:
            events.append([event])

    def _add_events(self, events: Iterable[tuple[Any, ...]]) -> None:
        last = self.events[-1] if self.events else None
        if type(last) is list:
            last.extend(events)
        else:
            self.events.append([*events])
