"""Leasing: the next messages in delivery order, each with a receipt."""

from __future__ import annotations

from localqueue.stores.protocol import LARGEST_BATCH_BYTES, LeaseRequest, StoredMessage
from localqueue.stores.sqlite.rows import MessageRow, is_damaged, stored_message
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import (
    ACKED,
    BY_SWEEP,
    INFLIGHT,
    LEASED,
    QUARANTINED,
    READY,
)
from localqueue.stores.sqlite.verbs.history import ended_attempts
from localqueue.stores.sqlite.verbs.leave import bury, expire, remove
from localqueue.stores.sqlite.verbs.log import (
    Publication,
    as_row,
    make_message,
    move_position,
    read_log,
    unread,
)
from localqueue.stores.sqlite.verbs.sweep import sweep, sweep_sometimes
from localqueue.stores.sqlite.view import QueueRow, Transaction, View

DAMAGED = {
    "type": "DamagedMessage",
    "module": "localqueue.errors",
    "message": "value and checksum do not agree: what is stored is not what was put",
}


def lease(tx: Transaction, request: LeaseRequest) -> list[StoredMessage]:
    """Up to ``limit`` messages, from the queues in the order given."""
    sweep_sometimes(tx)
    taken = _Taken(request)
    _from_all(tx, taken)
    # Nothing that is due is overlooked by one who would go away with less than was asked for.
    while not taken.is_full() and sweep(tx):
        _from_all(tx, taken)
    return taken.messages


def deliverable(view: View, queue: QueueRow, limit: int) -> list[tuple[MessageRow, Publication | None]]:
    """The next messages: rows, and for subscribers the log, merged in delivery order."""
    rows: list[tuple[MessageRow, Publication | None]] = []
    size = 0
    for found in view.db.execute(SQL.ready_messages, (queue.id, limit)):
        row = MessageRow._make(found)
        rows.append((row, None))
        size += len(row.value or b"")
        if size > LARGEST_BATCH_BYTES:
            break
    rest = unread(view, queue)
    if rest is not None:
        rows += [
            (as_row(queue, rest.topic, entry), entry)
            for entry in read_log(view, queue, rest, limit)
        ]
        rows.sort(key=lambda item: (item[0].rank, item[0].pos, item[0].number))
    return rows[:limit]


class _Taken:
    """What one call has leased so far."""

    def __init__(self, request: LeaseRequest) -> None:
        self.request = request
        self.messages: list[StoredMessage] = []
        self.size = 0

    def wants(self) -> int:
        return self.request.limit - len(self.messages)

    def is_full(self) -> bool:
        return self.wants() <= 0 or self.size >= LARGEST_BATCH_BYTES

    def fits(self, row: MessageRow) -> bool:
        return not self.messages or self.size + len(row.value or b"") <= LARGEST_BATCH_BYTES


def _from_all(tx: Transaction, taken: _Taken) -> None:
    for name in taken.request.queues:
        queue = tx.queue(name)
        if queue is None or queue.settings.paused:
            continue
        while not taken.is_full() and _from_queue(tx, queue, taken):
            pass


def _from_queue(tx: Transaction, queue: QueueRow, taken: _Taken) -> bool:
    """Take what is next. True when some of it could not be delivered and more may follow."""
    found = deliverable(tx, queue, taken.wants())
    rows, passed, again = [], 0, False
    for row, entry in found:
        if not taken.fits(row):
            taken.size = LARGEST_BATCH_BYTES
            break
        if entry is not None:
            passed = entry.offset
            value = row.value
            row = make_message(tx, queue, _topic_of(queue), entry)._replace(value=value)
        if row.expires_at is not None and row.expires_at <= tx.now:
            expire(tx, row)
            again = True
        elif is_damaged(row):
            bury(tx, row, QUARANTINED, DAMAGED, by=BY_SWEEP)
            again = True
        else:
            taken.size += len(row.value or b"")
            rows.append(row)
    if passed:
        rest = unread(tx, queue)
        assert rest is not None
        move_position(tx, queue, rest, passed)
    if rows:
        _lease_rows(tx, queue, rows, taken)
    return again


def _topic_of(queue: QueueRow) -> int:
    assert queue.topic is not None
    return queue.topic


def _lease_rows(tx: Transaction, queue: QueueRow, rows: list[MessageRow], taken: _Taken) -> None:
    request, now = taken.request, tx.now
    until = now + request.timeout
    updates, leased = [], []
    for row in rows:
        attempts = row.attempts + 1
        token = tx.event(
            LEASED,
            queue.id,
            row.number,
            prev=row.last,
            left=READY,
            entered=INFLIGHT,
            attempt=attempts,
            worker=request.worker,
        )
        updates.append((token, until, request.worker, request.liveness, now, row.id))
        history = ended_attempts(tx, row)
        held = row._replace(
            state=INFLIGHT,
            attempts=attempts,
            token=token,
            last=token,
            due_at=until,
            worker=request.worker,
            liveness=request.liveness,
            leased_at=now,
        )
        leased.append(held)
        taken.messages.append(stored_message(tx.file.identity, queue.name, held, history))
    tx.room.add(queue.name)
    if request.remove:
        for held in leased:
            remove(tx, held, ACKED)
    else:
        tx.db.executemany(SQL.lease_message, updates)
