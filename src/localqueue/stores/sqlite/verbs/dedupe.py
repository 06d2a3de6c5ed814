"""Deduplication records: one key, one message, while the record lives."""

from __future__ import annotations

from localqueue.errors import DuplicateConflict
from localqueue.stores.protocol import REQUEST_ID_WINDOW, Put
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import DEDUPE_KEY, REQUEST_ID
from localqueue.stores.sqlite.verbs.find import lives
from localqueue.stores.sqlite.view import QueueRow, Transaction


def find_duplicate(tx: Transaction, queue: QueueRow, put: Put, key: str) -> int | None:
    """The number of the message that has this key, or had it within the window."""
    tx.write_messages()
    found = tx.db.execute(SQL.find_dedupe, (queue.id, DEDUPE_KEY, key)).fetchone()
    if found is None:
        return None
    number, fingerprint, expires_at = found
    if expires_at is not None and expires_at <= tx.now and not lives(tx, queue.id, number):
        return None
    if put.conflict_is_error and fingerprint != put.fingerprint:
        raise DuplicateConflict(
            f"the dedupe key {put.dedupe_key!r} belongs to a message with another value"
        )
    return int(number)


def remember_key(tx: Transaction, queue: QueueRow, put: Put, key: str, number: int) -> None:
    expires_at = tx.now + put.dedupe_window if put.dedupe_window > 0 else None
    tx.db.execute(
        SQL.write_dedupe, (queue.id, DEDUPE_KEY, key, number, put.fingerprint, expires_at)
    )


def find_request(tx: Transaction, queue: QueueRow, request_id: str) -> int | None:
    """The number of the message that this request made, when it was made before."""
    found = tx.db.execute(SQL.find_dedupe, (queue.id, REQUEST_ID, request_id)).fetchone()
    if found is None or found[2] <= tx.now:
        return None
    return int(found[0])


def remember_request(tx: Transaction, queue: QueueRow, put: Put, number: int) -> None:
    tx.db.execute(
        SQL.write_dedupe,
        (
            queue.id,
            REQUEST_ID,
            put.request_id,
            number,
            put.fingerprint,
            tx.now + REQUEST_ID_WINDOW,
        ),
    )
