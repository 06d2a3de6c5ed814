"""The ways of a message: out of the store, to the dead letters, or back to waiting.

Whatever takes a message out of delivery goes through here, so that its dedupe record, body, history
and the next message of its ordering key are never forgotten in one path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from localqueue.message import leased_entry
from localqueue.stores.protocol import PREFETCHED
from localqueue.stores.sqlite.rows import MessageRow
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import (
    BY_SWEEP,
    BY_WORKER,
    DEAD,
    DEAD_LETTERED,
    DELAYED,
    EXPIRED,
    HELD,
    INFLIGHT,
    KINDS,
    PROMOTED,
    QUARANTINED,
    READY,
    REQUEUED,
)
from localqueue.stores.sqlite.verbs.bodies import drop_body
from localqueue.stores.sqlite.view import Transaction

LONGEST_HISTORY = 64
MESSAGE_EXPIRED = {
    "type": "MessageExpired",
    "module": None,
    "message": "the message waited longer than its time to live",
}


def remove(tx: Transaction, row: MessageRow, kind: int, *, by: int = BY_WORKER) -> None:
    """The message is gone, and so is all that was kept for it."""
    tx.closing(kind, row, None, by=by)
    tx.delete(row.id)
    if row.dedupe_key is not None:
        home = row.queue if row.home is None else row.home
        tx.db.execute(SQL.release_dedupe, (home, row.dedupe_key, row.number, tx.now))
    if row.body is not None:
        drop_body(tx, row.body)
    if row.ended:
        tx.db.execute(SQL.delete_attempts, (row.id,))
    _left(tx, row)


def bury(
    tx: Transaction,
    row: MessageRow,
    kind: int,
    error: Mapping[str, Any] | None,
    *,
    by: int = BY_WORKER,
    crashed: bool = False,
    failures: int = 1,
) -> None:
    """Out of delivery, kept as a dead letter."""
    failed = kind == DEAD_LETTERED and error is not None and not crashed
    failed_at = row.failed_at if error is None else tx.now
    seq = tx.closing(kind, row, DEAD, by=by, error=error)
    ended = _remember(tx, row, seq, kind, error)
    tx.db.execute(
        SQL.bury_message,
        (
            row.created_at if failed_at is None else failed_at,
            failed_at,
            row.error if error is None else json.dumps(error),
            seq,
            row.failures + (failures if failed else 0),
            row.crashes + crashed,
            ended,
            row.id,
        ),
    )
    _left(tx, row)


def put_back(
    tx: Transaction,
    row: MessageRow,
    kind: int,
    *,
    delay: float = 0.0,
    error: Mapping[str, Any] | None = None,
    by: int = BY_WORKER,
    crashed: bool = False,
    failures: int = 1,
) -> None:
    """Wait for the next delivery; what is over its time to live leaves instead."""
    if row.expires_at is not None and row.expires_at <= tx.now and row.state != DEAD:
        expire(tx, row)
        return
    requeued = row.state == DEAD
    failed = error is not None and not crashed
    state, due_at = (DELAYED, tx.now + delay) if delay > 0 else (READY, None)
    if row.key is not None:
        tx.write_messages()
        waits = row.state == HELD or (
            requeued and tx.db.execute(SQL.key_is_taken, (row.queue, row.key)).fetchone()
        )
        if waits:
            state, due_at = HELD, tx.now + delay
    # What no handler has begun keeps its place: leasing ahead must not change the order.
    ahead = row.state == INFLIGHT and row.note == PREFETCHED
    keeps = ahead and not (delay or crashed or error is not None)
    seq = tx.closing(kind, row, state, by=by, error=error)
    ended = _remember(tx, row, seq, kind, error)
    tx.db.execute(
        SQL.place_message,
        (
            state,
            row.pos if keeps else tx.now + delay,
            due_at,
            0 if requeued else row.failures + (failures if failed else 0),
            0 if requeued else row.crashes + crashed,
            ended,
            row.failed_at if error is None else tx.now,
            row.error if error is None else json.dumps(error),
            row.turn if row.key is None or not requeued else seq,
            seq,
            None if requeued else row.expires_at,
            row.id,
        ),
    )
    tx.ready.add(row.queue)


def expire(tx: Transaction, row: MessageRow) -> None:
    """The message waited longer than its time to live."""
    queue = tx.queue_by_number(row.queue)
    if queue.settings.on_expiry == "dead-letter":
        bury(tx, row, EXPIRED, MESSAGE_EXPIRED, by=BY_SWEEP)
    else:
        remove(tx, row, EXPIRED, by=BY_SWEEP)


def _left(tx: Transaction, row: MessageRow) -> None:
    """Someone waits for the place: a producer, or the next message of the key."""
    if row.state < INFLIGHT:
        tx.tell_room(tx.queue_by_number(row.queue))
    if row.key is not None and row.state != DEAD:
        _promote_next(tx, row.queue, row.key)


def _promote_next(tx: Transaction, queue: int, key: str) -> None:
    tx.write_messages()
    found = tx.db.execute(SQL.next_of_key, (queue, key)).fetchone()
    if found is None:
        return
    row = MessageRow._make(found)
    if row.state != HELD:
        return
    later = row.due_at is not None and row.due_at > tx.now
    state = DELAYED if later else READY
    seq = tx.event(
        PROMOTED, queue, row.number, prev=row.last, left=HELD, entered=state, by=BY_SWEEP
    )
    tx.db.execute(
        SQL.place_message,
        (
            state,
            row.due_at if later else tx.now,
            row.due_at if later else None,
            row.failures,
            row.crashes,
            row.ended,
            row.failed_at,
            row.error,
            row.turn,
            seq,
            row.expires_at,
            row.id,
        ),
    )
    tx.ready.add(queue)


def _remember(
    tx: Transaction, row: MessageRow, seq: int, kind: int, error: Mapping[str, Any] | None
) -> int:
    """Add an ended attempt or a requeue to the history; how many entries it has then."""
    if row.state != INFLIGHT and kind != REQUEUED:
        return row.ended
    entries = []
    if row.state == INFLIGHT and row.leased_at is not None:
        entries.append(leased_entry(row.leased_at, row.attempts, row.worker))
    ended: dict[str, Any] = {
        "type": "dead_lettered" if kind in (EXPIRED, QUARANTINED) else KINDS[kind],
        "at": tx.now,
        "attempt": row.attempts,
    }
    if row.worker is not None:
        ended["leased_by"] = row.worker
    if error is not None:
        ended["last_error"] = dict(error)
    tx.db.execute(SQL.add_attempt, (row.id, seq, json.dumps([*entries, ended])))
    if row.ended < LONGEST_HISTORY:
        return row.ended + 1
    tx.db.execute(SQL.forget_second_attempt, (row.id,))
    return row.ended
