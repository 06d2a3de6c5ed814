"""Capacity: checked in the transaction that inserts, so it is exact."""

from __future__ import annotations

from dataclasses import dataclass

from localqueue.stores.protocol import QueueIsFull
from localqueue.stores.sqlite.rows import MessageRow
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import DELAYED, DROPPED, HELD, READY
from localqueue.stores.sqlite.verbs.leave import remove
from localqueue.stores.sqlite.verbs.log import (
    count_unread,
    move_position,
    own_key,
    read_log,
    unread,
)
from localqueue.stores.sqlite.verbs.sweep import expire_waiting
from localqueue.stores.sqlite.view import QueueRow, Transaction

LONGEST_OVERFLOW_CHAIN = 8


@dataclass(frozen=True, slots=True)
class Dropped:
    """The new message is let go."""


@dataclass(frozen=True, slots=True)
class Buried:
    """The new message goes to the dead letters."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """There is room; its producer should pause for ``delay`` seconds."""

    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Overflowed:
    """The new message goes to another queue."""

    to: str


Admission = Admitted | Overflowed | Buried | Dropped


def admit(tx: Transaction, queue: QueueRow) -> Admission:
    """Where one more message goes. QueueIsFull when its producer must wait or is refused."""
    settings = queue.settings
    waiting = count_waiting(tx, queue)
    if waiting >= settings.maxsize and expire_waiting(tx, queue):
        waiting = count_waiting(tx, queue)
    if waiting < settings.maxsize:
        return Admitted()
    match settings.overflow:
        case "throttle":
            share = (waiting - settings.maxsize + 1) / settings.maxsize
            return Admitted(settings.throttle_delay * min(1.0, share))
        case "drop-newest":
            return Dropped()
        case "drop-oldest" if _drop_oldest(tx, queue):
            return Admitted()
        case "overflow":
            if settings.overflow_to is None:
                return Buried()
            return Overflowed(settings.overflow_to)
    raise QueueIsFull(queue.name, settings.overflow)


def count_waiting(tx: Transaction, queue: QueueRow) -> int:
    """What capacity counts: ready, delayed and held messages, and the unread part of a log."""
    return tx.count(queue.id, READY, DELAYED, HELD) + count_unread(tx, queue)


def _drop_oldest(tx: Transaction, queue: QueueRow) -> bool:
    """Let go of the oldest ready message of the lowest priority; False when none is ready."""
    tx.write_messages()
    rest = unread(tx, queue)
    entries = read_log(tx, queue, rest, 1) if rest is not None else []
    lowest = tx.db.execute(SQL.lowest_rank, (queue.id,)).fetchone()
    oldest = None
    if lowest is not None:
        found = tx.db.execute(SQL.oldest_of_rank, (queue.id, lowest[0])).fetchone()
        oldest = MessageRow._make(found)
    entry = entries[0] if entries else None
    if entry is not None and oldest is not None:
        # What is published has no priority, so it goes before what has one.
        other = (-oldest.rank, oldest.pos, oldest.id)
        entry = entry if (0, entry.created_at, entry.seq) < other else None
    if entry is not None and rest is not None:
        tx.event(DROPPED, queue.id, entry.seq, prev=entry.seq)
        key = own_key(entry.dedupe_key, queue)
        tx.db.execute(SQL.release_dedupe, (queue.id, key, entry.seq, tx.now))
        move_position(tx, queue, rest, entry.offset)
        return True
    if oldest is None:
        return False
    remove(tx, oldest, DROPPED)
    return True
