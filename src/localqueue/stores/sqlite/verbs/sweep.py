"""What time does: leases end, delayed messages become due, waiting ones expire.

It runs inside the transactions of those who lease, in bounded slices, so that no background process
is needed and no call pays for a large backlog.
"""

from __future__ import annotations

import json
from collections import Counter

from localqueue.stores.settings import QueueSettings
from localqueue.stores.sqlite.rows import MessageRow
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
from localqueue.stores.sqlite.view import Transaction

SLICE = 256
OFTEN_ENOUGH = 0.010
PREFETCHED = "prefetched"
"""The note of a lease whose handler has not begun: its end is no crash."""


def sweep_sometimes(tx: Transaction) -> None:
    """Sweep a slice, unless one was swept just now."""
    if abs(tx.now - tx.file.last_sweep) >= OFTEN_ENOUGH:
        sweep(tx)


def sweep(tx: Transaction) -> bool:
    """Sweep a slice of everything that is due; whether anything was."""
    tx.file.last_sweep = tx.now
    swept = end_leases(tx) + promote_due(tx) + expire_waiting(tx)
    _forget_dedupes(tx)
    _forget_records(tx)
    return swept > 0


def charged(row: MessageRow) -> bool:
    """Whether the end of this lease is the death of a worker that was running the message."""
    return row.liveness is not None and row.note != PREFETCHED


def is_poison(row: MessageRow, settings: QueueSettings) -> bool:
    """Whether the end of this lease is one crash too many."""
    return charged(row) and 0 < settings.crash_limit <= row.crashes + 1


def end_leases(tx: Transaction) -> int:
    """Leases whose time is over: back to ready, or to the dead letters after too many crashes."""
    tx.write_messages()
    rows = tx.db.execute(SQL.ended_leases, (tx.now, SLICE)).fetchall()
    for row in map(MessageRow._make, rows):
        queue = tx.queue(tx.queue_name(row.queue))
        assert queue is not None
        limit = queue.settings.crash_limit
        if is_poison(row, queue.settings):
            error = {
                "type": "CrashLimitExceeded",
                "module": None,
                "message": f"{limit} deliveries ended with the death of their worker",
            }
            bury(tx, row, DEAD_LETTERED, error, by=BY_SWEEP, crashed=True)
        else:
            put_back(tx, row, LEASE_EXPIRED, by=BY_SWEEP, crashed=charged(row))
    return len(rows)


def promote_due(tx: Transaction) -> int:
    """Delayed messages whose time has come, in one event per queue."""
    tx.write_messages()
    rows = tx.db.execute(SQL.due_messages, (tx.now, SLICE)).fetchall()
    if rows:
        tx.db.execute(SQL.promote_messages, (json.dumps([number for number, _ in rows]),))
        for queue, n in Counter(queue for _, queue in rows).items():
            tx.event(PROMOTED, queue, left=DELAYED, entered=READY, n=n, by=BY_SWEEP)
            tx.ready.add(tx.queue_name(queue))
    return len(rows)


def expire_waiting(tx: Transaction) -> int:
    """Messages that waited longer than their time to live."""
    tx.write_messages()
    rows = tx.db.execute(SQL.expired_messages, (tx.now, SLICE)).fetchall()
    for number in [row[0] for row in rows]:
        # Read again: the one before may have been the head that held this one.
        found = tx.db.execute(SQL.message_row, (number,)).fetchone()
        expire(tx, MessageRow._make(found))
    return len(rows)


def _forget_dedupes(tx: Transaction) -> None:
    tx.write_messages()
    for queue, kind, key, message in tx.db.execute(SQL.expired_dedupes, (tx.now, SLICE)).fetchall():
        alive = kind == DEDUPE_KEY and lives(tx, queue, message)
        tx.db.execute(SQL.keep_dedupe if alive else SQL.delete_dedupe, (queue, kind, key))


def _forget_records(tx: Transaction) -> None:
    expired = tx.db.execute(SQL.any_expired_records, (tx.now, SLICE)).fetchall()
    tx.db.executemany(SQL.delete_record, expired)
