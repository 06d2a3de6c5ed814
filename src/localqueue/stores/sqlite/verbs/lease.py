"""Leasing: the next messages in delivery order, each with a receipt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localqueue.errors import StoreCorrupt
from localqueue.stores.leased import size_of
from localqueue.stores.protocol import LARGEST_BATCH_BYTES, LeaseRequest, StoredMessage
from localqueue.stores.sqlite.rows import MessageRow, is_damaged, leased, leased_message
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import (
    ACKED,
    BY_SWEEP,
    QUARANTINED,
)
from localqueue.stores.sqlite.verbs.history import ended_attempts
from localqueue.stores.sqlite.verbs.lease_plain import lease_numbers, lease_one, lease_plain
from localqueue.stores.sqlite.verbs.leave import bury, expire, remove
from localqueue.stores.sqlite.verbs.log import (
    Publication,
    as_row,
    make_message,
    make_message_early,
    move_position,
    read_log,
    unread,
)
from localqueue.stores.sqlite.verbs.sweep import sweep, sweep_sometimes
from localqueue.stores.sqlite.view import QueueRow, Transaction

MOST_PASSES = 10_000
"""Each pass takes out what cannot be delivered; in a sound file few are needed."""
DAMAGED: dict[str, Any] = {
    "type": "DamagedMessage",
    "module": "localqueue.errors",
    "message": "value and checksum do not agree: what is stored is not what was put",
}


def lease(tx: Transaction, request: LeaseRequest) -> Sequence[StoredMessage]:
    """Up to ``limit`` messages, from the queues in the order given.

    Plain ones in a few statements; when anything else is among them, all are looked at one by one.
    """
    tx.write_messages()
    if request.limit == 1 and len(request.queues) == 1:
        one = _lease_one(tx, request)
        if one is not None:
            return one
    queues = [queue for name in request.queues if (queue := tx.queue(name)) is not None]
    for queue in queues:
        # Removing the head of a key makes the next one ready: for that everything due is swept
        # before, so that one call takes one message of a key, as with leases.
        if request.remove or request.limit == 0:
            sweep(tx, queue)
        else:
            sweep_sometimes(tx, queue)
    taken = _Taken(request)
    _from_all(tx, queues, taken)
    if not taken.is_full():
        # Nothing that is due is overlooked by one who would go away with less than was asked for.
        swept = [sweep(tx, queue) for queue in queues if queue.id not in tx.swept]
        if any(swept):
            _from_all(tx, queues, taken)
    return taken.messages


def _lease_one(tx: Transaction, request: LeaseRequest) -> Sequence[StoredMessage] | None:
    """One message of one queue; None when it takes more than the short way."""
    queue = tx.queue(request.queues[0])
    if (
        queue is None
        or queue.topic is not None
        or queue.settings.paused
        or not _reads_json(request)
        or (request.remove and queue.settings.ordering == "per-key")
    ):
        return None
    sweep_sometimes(tx, queue)
    one = lease_one(tx, queue, request)
    if one is not None:
        tx.tell_room(queue)
    return one


def _reads_json(request: LeaseRequest) -> bool:
    return request.codecs is None or "json" in request.codecs


def _deliverable(
    tx: Transaction, queue: QueueRow, limit: int
) -> tuple[list[MessageRow], dict[int, Publication]]:
    """The next messages in delivery order; for subscribers also from the log, by their number."""
    rows: list[MessageRow] = []
    size = 0
    for found in tx.db.execute(SQL.ready_messages, (queue.id, limit)):
        row = MessageRow._make(found)
        rows.append(row)
        size += len(row[-1] or b"")
        if size > LARGEST_BATCH_BYTES:
            break
    rest = unread(tx, queue)
    if rest is None:
        return rows, {}
    entries = {entry.seq: entry for entry in read_log(tx, queue, rest, limit)}
    rows += [as_row(queue, rest.topic, entry) for entry in entries.values()]
    rows.sort(key=lambda row: (row.rank, row.pos, row.id))
    return rows[:limit], entries


class _Taken:
    """What one call has leased so far."""

    __slots__ = ("messages", "request", "room", "wants")

    def __init__(self, request: LeaseRequest) -> None:
        self.request = request
        self.messages: Sequence[StoredMessage] = []
        self.wants = request.limit
        """How many messages more it would take."""
        self.room = LARGEST_BATCH_BYTES
        """How many bytes more."""

    def is_full(self) -> bool:
        return self.wants <= 0 or self.room <= 0

    def add(self, messages: Sequence[StoredMessage]) -> None:
        self.messages = [*self.messages, *messages] if self.messages else messages
        self.wants -= len(messages)
        self.room -= size_of(messages)


def _from_all(tx: Transaction, queues: list[QueueRow], taken: _Taken) -> None:
    for queue in queues:
        if not queue.settings.paused and not taken.is_full():
            _from_queue(tx, queue, taken)


def _from_queue(tx: Transaction, queue: QueueRow, taken: _Taken) -> None:
    if queue.topic is None and _reads_json(taken.request):
        plain = lease_plain(tx, queue, taken.request, taken.wants, taken.room)
        if plain is not None:
            if plain:
                taken.add(plain)
                tx.tell_room(queue)
            return
    for _ in range(MOST_PASSES):
        rows = _sound_rows(tx, queue, taken)
        if rows is not None:
            break
    else:
        raise StoreCorrupt(f"messages of {queue.name!r} cannot be taken out of delivery")
    if rows:
        taken.add(_lease_rows(tx, queue, rows, taken.request))


def _sound_rows(tx: Transaction, queue: QueueRow, taken: _Taken) -> list[MessageRow] | None:
    """The next rows to lease. None when some had to go instead: then others are next."""
    tx.write_messages()
    found, entries = _deliverable(tx, queue, taken.wants)
    rows: list[MessageRow] = []
    room, sound = taken.room, True
    for row in found:
        room -= len(row.value or b"")
        if room < 0 and (rows or taken.messages):
            break
        expired = row.expires_at is not None and row.expires_at <= tx.now
        error = None if expired else _trouble(row, taken.request)
        if not expired and error is None:
            rows.append(row)
            continue
        sound = False
        # A row of its own that began as a publication is in the log no more.
        if row.id in entries:
            row = make_message_early(tx, queue, _topic_of(queue), entries[row.id])
        if expired:
            expire(tx, row)
        else:
            bury(tx, row, QUARANTINED, error, by=BY_SWEEP)
    if not sound:
        return None
    return _make_messages(tx, queue, rows, entries) if entries else rows


def _trouble(row: MessageRow, request: LeaseRequest) -> dict[str, Any] | None:
    """Why the message cannot be handed out, or None."""
    if is_damaged(row):
        return DAMAGED
    codec = row.codec or "json"
    if request.codecs is not None and codec not in request.codecs:
        return DAMAGED | {"message": f"written with the codec {codec!r}, which its reader lacks"}
    return None


def _make_messages(
    tx: Transaction, queue: QueueRow, rows: list[MessageRow], entries: dict[int, Publication]
) -> list[MessageRow]:
    """The same, with a row of its own for each that is still a publication."""
    passed, made = 0, []
    for row in rows:
        entry = entries.get(row.id)
        if entry is not None:
            passed = entry.offset
            row = make_message(tx, queue, _topic_of(queue), entry)._replace(value=row.value)
        made.append(row)
    if passed:
        rest = unread(tx, queue)
        assert rest is not None
        move_position(tx, queue, rest, passed)
    return made


def _topic_of(queue: QueueRow) -> int:
    assert queue.topic is not None
    return queue.topic


def _lease_rows(
    tx: Transaction, queue: QueueRow, rows: list[MessageRow], request: LeaseRequest
) -> list[StoredMessage]:
    now, identity = tx.now, tx.file.identity
    worker, until = request.worker, now + request.timeout
    first = lease_numbers(tx, queue, tuple(row.id for row in rows), until, request)
    messages = []
    for token, row in enumerate(rows, first):
        history = ended_attempts(tx, row) if row.ended else []
        messages.append(
            leased_message(identity, queue.name, row, history, token, until, worker, now)
        )
        if request.remove:
            remove(tx, leased(row, token, until, worker, now), ACKED)
    tx.tell_room(queue)
    return messages
