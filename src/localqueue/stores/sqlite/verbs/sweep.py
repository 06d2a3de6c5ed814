"""What time does: leases end, delayed messages become due, waiting ones expire.

It runs inside the transactions of those who put and lease, for the queues they use, in bounded
slices: no background process is needed, and no call pays for another queue's backlog.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from localqueue.errors import StoreCorrupt
from localqueue.stores.protocol import PREFETCHED
from localqueue.stores.settings import QueueSettings
from localqueue.stores.signs_of_life import running_under
from localqueue.stores.sqlite.rows import MessageRow, public_id
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import (
    BY_SWEEP,
    DEAD_LETTERED,
    DEDUPE_KEY,
    DELAYED,
    LEASE_EXPIRED,
    PROMOTED,
    READY,
)
from localqueue.stores.sqlite.verbs.find import lives
from localqueue.stores.sqlite.verbs.leave import bury, expire, put_back
from localqueue.stores.sqlite.verbs.log import expire_unread
from localqueue.stores.sqlite.view import QueueRow, Transaction

SLICE = 256
MOST_SLICES = 16
"""Of one queue in one call: the rest is swept by the next ones."""
OFTEN_ENOUGH = 0.010
SELDOM = 1.0
"""Where nothing depends on it, it only has to happen in the end."""
_KEYS = 0
"""Stands for a queue's number: the expired keys and records of all queues."""


def sweep_sometimes(tx: Transaction, queue: QueueRow, every: float = OFTEN_ENOUGH) -> None:
    """Sweep the queue, unless that was done just now."""
    if queue.id not in tx.swept and _is_time_for(tx, queue.id, every):
        sweep(tx, queue)


def _is_time_for(tx: Transaction, queue: int, every: float) -> bool:
    last = tx.file.last_sweep.get(queue)
    return last is None or abs(tx.now - last) >= every


def sweep(tx: Transaction, queue: QueueRow) -> bool:
    """Do what is due in this queue; whether anything was."""
    anything = False
    for _ in range(MOST_SLICES if _is_anything_due(tx, queue) else 0):
        swept = end_leases(tx, queue) + promote_due(tx, queue) + expire_slice(tx, queue)
        if not swept:
            break
        anything = True
    if not tx.swept and _is_time_for(tx, _KEYS, SELDOM):
        _forget_dedupes(tx)
        _forget_records(tx)
        tx.swept.add(_KEYS)
    tx.swept.add(queue.id)
    return anything


def _is_anything_due(tx: Transaction, queue: QueueRow) -> bool:
    """Whether a slice would find something; of a topic's subscriber only the slice can say."""
    if queue.topic is not None:
        return True
    tx.write_messages()
    return tx.db.execute(SQL.is_anything_due, (queue.id, tx.now)).fetchone() is not None


def charged(liveness: str | None, note: str | None) -> bool:
    """Whether the end of this lease is the death of a worker that was running the message."""
    return liveness is not None and note != PREFETCHED


def is_poison(
    settings: QueueSettings, crashes: int, liveness: str | None, note: str | None
) -> bool:
    """Whether the end of this lease is one crash too many."""
    return charged(liveness, note) and is_at_crash_limit(settings, crashes)


def is_at_crash_limit(settings: QueueSettings, crashes: int) -> bool:
    """Whether one more crash is one too many."""
    return 0 < settings.crash_limit <= crashes + 1


def end_leases(tx: Transaction, queue: QueueRow) -> int:
    """Leases whose time is over: back to ready, or to the dead letters after too many crashes."""
    tx.write_messages()
    rows = tx.db.execute(SQL.ended_leases, (queue.id, tx.now, SLICE)).fetchall()
    signs: dict[str, frozenset[str] | None] = {}
    for row in map(MessageRow._make, rows):
        end_lease(tx, queue, row, LEASE_EXPIRED, crashed=_has_crashed(tx, row, signs))
    return len(rows)


def _has_crashed(tx: Transaction, row: MessageRow, signs: dict[str, frozenset[str] | None]) -> bool:
    """Whether the end of this lease is charged: as the sign of its worker says, if that is here.

    The note of a lease is as old as the last heartbeat; a worker that died before its first one
    left nothing but its sign. ``signs`` are those that were read.
    """
    name = row.liveness
    if name is None:
        return False
    if name not in signs:
        signs[name] = running_under(tx.file.run_folder, name)
    running = signs[name]
    if running is None:
        return charged(name, row.note)
    return public_id(tx.file.identity, row) in running


def end_lease(
    tx: Transaction,
    queue: QueueRow,
    row: MessageRow,
    kind: int,
    *,
    crashed: bool,
    error: Mapping[str, Any] | None = None,
    by: int = BY_SWEEP,
) -> None:
    """Back to ready, or to the dead letters after one crash too many."""
    if crashed and is_at_crash_limit(queue.settings, row.crashes):
        limit = queue.settings.crash_limit
        last = "" if error is None else f"; the last one: {error.get('message')}"
        reason = {
            "type": "CrashLimitExceeded",
            "module": "localqueue",
            "message": f"{limit} deliveries ended with the death of their worker{last}",
        }
        bury(tx, row, DEAD_LETTERED, reason, by=by, crashed=True)
    else:
        put_back(tx, row, kind, error=error, by=by, crashed=crashed)


def promote_due(tx: Transaction, queue: QueueRow) -> int:
    """Delayed messages whose time has come, in one event."""
    tx.write_messages()
    rows = tx.db.execute(SQL.due_messages, (queue.id, tx.now, SLICE)).fetchall()
    if rows:
        tx.db.execute(SQL.promote_messages, (json.dumps([number for (number,) in rows]),))
        tx.event(PROMOTED, queue.id, left=DELAYED, entered=READY, n=len(rows), by=BY_SWEEP)
        tx.ready.add(queue.id)
    return len(rows)


def expire_waiting(tx: Transaction, queue: QueueRow) -> bool:
    """Let go of everything in this queue that waited too long; whether anything was."""
    expired = [expire_slice(tx, queue)]
    while expired[-1] and len(expired) < MOST_SLICES:
        expired.append(expire_slice(tx, queue))
    return any(expired)


def expire_slice(tx: Transaction, queue: QueueRow) -> int:
    """A slice of the messages and publications that waited longer than their time to live."""
    tx.write_messages()
    rows = tx.db.execute(SQL.expired_messages, (queue.id, tx.now, SLICE)).fetchall()
    for number in rows:
        # Read one by one: the one before may have been the head that held this one.
        found = tx.db.execute(SQL.message_row, number).fetchone()
        if found is None:
            raise StoreCorrupt(f"an index of {queue.name!r} names a message that is not there")
        expire(tx, MessageRow._make(found))
    return len(rows) + expire_unread(tx, queue, SLICE)


def _forget_dedupes(tx: Transaction) -> None:
    tx.write_messages()
    for queue, kind, key, message in tx.db.execute(SQL.expired_dedupes, (tx.now, SLICE)).fetchall():
        alive = kind == DEDUPE_KEY and lives(tx, queue, message)
        tx.db.execute(SQL.keep_dedupe if alive else SQL.delete_dedupe, (queue, kind, key))


def _forget_records(tx: Transaction) -> None:
    expired = tx.db.execute(SQL.any_expired_records, (tx.now, SLICE)).fetchall()
    tx.db.executemany(SQL.delete_record, expired)
