"""Whether a file is sound: by SQL alone, without the code that wrote it.

The journal is replayed from its first event and has to give the messages that are there, each in
its state, and the counters that were kept. So a transition that was written in part is seen,
whatever part it was.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

READY, DELAYED, HELD, INFLIGHT, DEAD = range(5)
ENQUEUED, LEASED, EXTENDED, ACKED, RELEASED, LEASE_EXPIRED, DEAD_LETTERED = 1, 3, 4, 5, 6, 7, 8
COUNTED = 19


class Unsound(AssertionError):
    """The file says two things that cannot both be true."""


class Event(NamedTuple):
    """A row of the journal, as far as it is replayed."""

    seq: int
    at: float
    queue: int
    message: int | None
    prev: int | None
    kind: int
    left: int | None
    entered: int | None
    n: int
    leased_at: float | None


class Message(NamedTuple):
    """A row of the message table, as far as the journal tells it."""

    id: int
    queue: int
    state: int
    last: int
    token: int | None


class Contents(NamedTuple):
    """What a sound file holds."""

    events: list[Event]
    messages: dict[int, Message]

    def ids(self, *states: int) -> set[int]:
        return {row.id for row in self.messages.values() if row.state in states}

    def by_kind(self, kind: int) -> dict[int, Event]:
        """Events of a kind by their message; of several the last."""
        return {
            event.message: event
            for event in self.events
            if event.kind == kind and event.message is not None
        }


def number_of(public: str) -> int:
    """The number of a message in its file: the second half of its public id."""
    return int(public[16:], 16)


def check_file(path: Path, *, trimmed: bool = False) -> Contents:
    """Everything in the file, which is sound; Unsound says what is wrong with it.

    One that nobody came to make, or to make tables in, is sound and empty.
    """
    if not path.exists():
        return Contents([], {})
    with closing(sqlite3.connect(path)) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        if not tables:
            return Contents([], {})
        answer = db.execute("PRAGMA integrity_check").fetchall()
        if answer != [("ok",)]:
            raise Unsound(f"integrity_check: {answer[:3]}")
        db.execute("BEGIN")
        events = [
            Event(*row)
            for row in db.execute(
                "SELECT seq, at, queue, message, prev, kind, from_state, to_state, n, leased_at"
                " FROM event ORDER BY seq"
            )
        ]
        messages = {
            row[0]: Message(*row)
            for row in db.execute("SELECT id, queue, state, last, token FROM message")
        }
        counted: Counter[tuple[int, int]] = Counter(
            {(queue, state): n for queue, state, n in db.execute("SELECT * FROM counter")}
        )
        marks = dict(db.execute("SELECT name, seq FROM mark").fetchall())
        folded = marks["fold"]
        # Files of the first versions have an index instead.
        listed = set(db.execute("SELECT message, seq FROM ended")) if "ended" in tables else None
        spans = db.execute("SELECT queue, first, last FROM span") if "span" in tables else None
        within = None if spans is None else _numbers(spans.fetchall())
    if not trimmed:
        _check_whole(events)
        _check_lives(events, messages)
        _check_equal(
            "the counters and the journal up to the fold", counted, _sum(events, 0, folded)
        )
    if listed is not None:
        _check_ends(events, folded, listed)
    if within is not None:
        _check_spans(events, marks["span"], within)
    tail = _sum(events, folded, events[-1].seq if events else 0)
    rows = Counter((row.queue, row.state) for row in messages.values())
    counted.update(tail)
    _check_equal("the counts and the rows", counted, rows)
    return Contents(events, messages)


def _check_whole(events: list[Event]) -> None:
    for seq, event in enumerate(events, 1):
        if event.seq != seq:
            raise Unsound(f"event {seq} is missing, {event} follows")


def _check_lives(events: list[Event], messages: dict[int, Message]) -> None:
    """Each message went from state to state without a gap, and is where its last event left it."""
    living: dict[int, Message] = {}
    for event in events:
        if event.message is None:
            continue
        before = living.get(event.message)
        _check_step(event, before)
        if event.entered is None:
            del living[event.message]
            continue
        token = event.seq if event.kind == LEASED else None
        if before is not None and event.left == event.entered == INFLIGHT:
            token = before.token
        living[event.message] = Message(event.message, event.queue, event.entered, event.seq, token)
    for number in living.keys() | messages.keys():
        told, found = living.get(number), messages.get(number)
        if told is None or found is None or not _alike(told, found):
            raise Unsound(f"the journal ends with {told}, the table has {found}")


def _check_ends(events: list[Event], folded: int, listed: set[tuple[int, int]]) -> None:
    """Of all lives that ended up to the fold the end is listed, and nothing else."""
    ends = {
        (event.message, event.seq)
        for event in events
        if event.message is not None and event.entered is None and event.seq <= folded
    }
    if ends != listed:
        raise Unsound(f"ends of lives that are not listed, or no ends: {sorted(ends ^ listed)[:5]}")


def _numbers(spans: list[tuple[int, int, int]]) -> Counter[tuple[int, int]]:
    """How many spans of a queue each number is in. None of them is long."""
    return Counter((queue, seq) for queue, first, last in spans for seq in range(first, last + 1))


def _check_spans(events: list[Event], spanned: int, within: Counter[tuple[int, int]]) -> None:
    """Every event up to the mark is in one span of its queue; what is newer is in none."""
    for event in events:
        if within[event.queue, event.seq] != (event.seq <= spanned):
            raise Unsound(f"{event} is in {within[event.queue, event.seq]} spans of its queue")


def _check_step(event: Event, before: Message | None) -> None:
    if before is None:
        if event.prev is not None or event.left is not None:
            raise Unsound(f"{event} follows an event that is not there")
    elif event.prev != before.last:
        raise Unsound(f"{event} does not follow {before}")
    elif event.left is None or not _same_state(event.left, before.state):
        raise Unsound(f"{event} leaves another state than that of {before}")


def _alike(told: Message, found: Message) -> bool:
    return _same_state(told.state, found.state) and told[3:] == found[3:]


def _same_state(one: int, other: int) -> bool:
    # A sweep makes many delayed messages ready in one event, which names none of them.
    return one == other or {one, other} <= {READY, DELAYED}


def _sum(events: list[Event], since: int, upto: int) -> Counter[tuple[int, int]]:
    counts: Counter[tuple[int, int]] = Counter()
    for event in events:
        if since < event.seq <= upto:
            if event.left is not None:
                counts[event.queue, event.left] -= event.n
            if event.entered is not None:
                counts[event.queue, event.entered] += event.n
    return counts


def _check_equal(what: str, one: Counter[tuple[int, int]], other: Counter[tuple[int, int]]) -> None:
    unlike = {
        key: (one[key], other[key]) for key in one.keys() | other.keys() if one[key] != other[key]
    }
    if unlike:
        raise Unsound(f"{what} differ, by queue and state: {unlike}")
