"""The short ways for a plain message: its row and its event are all there is of it.

Most ask for nothing at all, and everything is known of them beforehand.
"""

from __future__ import annotations

from localqueue.codec import checksum
from localqueue.message import State
from localqueue.stores.protocol import Enqueued, Fate, Put, new_enqueued, new_message
from localqueue.stores.sqlite.rows import plain_seal, seal
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import DELAYED, PUBLIC_STATE, READY
from localqueue.stores.sqlite.verbs.bodies import LARGEST_INLINE
from localqueue.stores.sqlite.view import QueueRow, Transaction

_OPTIONS = slice(Put._fields.index("codec"), Put._fields.index("dedupe_window"))
_NO_OPTIONS = Put("", b"")[_OPTIONS]


def asks_for_nothing(queue: QueueRow, put: Put) -> bool:
    """Whether the queue has no wishes, and neither has the put."""
    return (
        queue.has_no_wishes
        and put[_OPTIONS] == _NO_OPTIONS
        and put.request_id is None
        and put.id is None
        and len(put.body) <= LARGEST_INLINE
    )


def insert_without_options(tx: Transaction, queue: QueueRow, put: Put) -> Enqueued:
    """Store it; the same row and event as any other message has."""
    now, number, body, hand = tx.now, queue.id, put.body, tx.file.hand
    seq = tx.reserve(1, number, None, READY)
    hand.execute(SQL.add_plain_message, (seq, number, now, plain_seal(body, seq, number), body))
    hand.execute(SQL.add_plain_event, (seq, now, number, READY))
    tx.ready.add(number)
    message = new_message(
        (
            tx.file.identity.public(seq), queue.name, body, "json", None, State.READY, 0, now, now,
            None, None, None, None, [], None, 0, None, None, 0, 0, 0, False,
        )
    )  # fmt: skip
    return new_enqueued((message, Fate.STORED, queue.version, 0.0, ()))


def is_plain(queue: QueueRow, put: Put, bounded: bool) -> bool:
    """Whether nothing but the queue itself has to be looked at, and the value fits its row."""
    settings = queue.settings
    return (
        settings.fanout is None
        and not settings.journal_payloads
        and not (bounded and settings.maxsize)
        and put.dedupe_key is None
        and put.ordering_key is None
        and put.request_id is None
        and put.id is None
        and len(put.body) <= LARGEST_INLINE
        and (put.priority == 0 or settings.ordering == "priority")
    )


def insert_plain(tx: Transaction, queue: QueueRow, put: Put) -> Enqueued:
    """Store it; the same row and event as any other message has."""
    now, number, settings = tx.now, queue.id, queue.settings
    body, headers, priority = put.body, put.headers, put.priority
    codec = None if put.codec == "json" else put.codec
    state, due = (DELAYED, now + put.delay) if put.delay > 0 else (READY, now)
    ttl = settings.ttl if put.ttl is None else put.ttl
    expires_at = None if ttl is None else now + ttl
    seq = tx.reserve(1, number, None, state)
    sealed = seal(checksum(body, headers, codec), seq, number)
    due_at = due if state == DELAYED else None
    shared = (number, state, -priority, due, due_at, now, expires_at, codec, headers)
    tx.db.execute(SQL.add_alike_message, (*shared, seq, sealed, body))
    tx.db.execute(SQL.add_plain_event, (seq, now, number, state))
    tx.ready.add(number)
    message = new_message(
        (
            tx.file.identity.public(seq), queue.name, body, put.codec, headers, PUBLIC_STATE[state],
            0, now, due, None, None, None, None, [], None, priority, None, expires_at, 0, 0, 0,
            False,
        )
    )  # fmt: skip
    return new_enqueued((message, Fate.STORED, queue.version, 0.0, ()))
