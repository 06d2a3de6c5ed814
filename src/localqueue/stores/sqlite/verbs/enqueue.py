"""Storing messages: deduplication, capacity and insert in one transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from localqueue.codec import checksum, decode_headers
from localqueue.errors import InvalidMessage
from localqueue.stores.protocol import (
    LARGEST_BATCH,
    LARGEST_BATCH_BYTES,
    Enqueued,
    Fate,
    Put,
    QueueIsFull,
    StoredMessage,
)
from localqueue.stores.sqlite.rows import seal, stored_message
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import (
    DEAD,
    DELAYED,
    DROPPED,
    ENQUEUED,
    HELD,
    PUBLIC_STATE,
    READY,
)
from localqueue.stores.sqlite.verbs.bodies import LARGEST_INLINE, add_body, use_body
from localqueue.stores.sqlite.verbs.capacity import (
    LONGEST_OVERFLOW_CHAIN,
    Admitted,
    Buried,
    Dropped,
    Overflowed,
    admit,
)
from localqueue.stores.sqlite.verbs.dedupe import (
    find_duplicate,
    find_request,
    remember_key,
    remember_request,
)
from localqueue.stores.sqlite.verbs.find import find_number, read_row
from localqueue.stores.sqlite.verbs.history import ended_attempts
from localqueue.stores.sqlite.verbs.plain import insert_plain, is_plain
from localqueue.stores.sqlite.verbs.queues import use_queue
from localqueue.stores.sqlite.view import QueueRow, Transaction


@dataclass(slots=True)
class SharedBody:
    """A value that several copies of one publication refer to; stored with the first of them."""

    number: int | None = None


def check_batch(puts: Sequence[Put]) -> None:
    """A batch holds the lock for one transaction, so it is limited."""
    if len(puts) > LARGEST_BATCH:
        raise InvalidMessage(
            f"a batch is at most {LARGEST_BATCH:,} messages, this one has {len(puts):,};"
            " put_stream takes any number"
        )
    size = sum([len(put.body) for put in puts])
    if size > LARGEST_BATCH_BYTES:
        raise InvalidMessage(
            f"a batch is at most {LARGEST_BATCH_BYTES:,} bytes, this one has {size:,};"
            " put_stream takes any number"
        )


def repeated_request(
    tx: Transaction, queue: QueueRow, put: Put, request_id: str
) -> Enqueued | None:
    """The answer that this request got the first time, when it was made before."""
    number = find_request(tx, queue, request_id)
    return None if number is None else existing(tx, queue, put, number)


def deliver(
    tx: Transaction,
    queue: QueueRow,
    put: Put,
    *,
    key: str | None,
    bounded: bool,
    shared: SharedBody | None = None,
) -> Enqueued:
    """Put one message into one queue; ``key`` is its dedupe key there."""
    if key is not None:
        number = find_duplicate(tx, queue, put, key)
        if number is not None:
            return existing(tx, queue, put, number)
    target, delay = queue, 0.0
    if bounded and queue.settings.maxsize:
        for _ in range(LONGEST_OVERFLOW_CHAIN):
            if target.settings.maxsize == 0:
                break
            match admit(tx, target):
                case Admitted(pause):
                    delay = pause
                    break
                case Overflowed(name):
                    target = use_queue(tx, name)
                case Buried():
                    return insert(tx, target, put, queue, key=key, shared=shared, overflowed=True)
                case Dropped():
                    return _drop(tx, target, put)
        else:
            raise QueueIsFull(queue.name, queue.settings.overflow)
    if shared is None and target is queue and is_plain(queue, put, False):
        answer = insert_plain(tx, queue, put)
    else:
        answer = insert(tx, target, put, queue, key=key, shared=shared)
    return answer._replace(delay=delay) if delay else answer


def insert(
    tx: Transaction,
    queue: QueueRow,
    put: Put,
    home: QueueRow,
    *,
    key: str | None = None,
    shared: SharedBody | None = None,
    overflowed: bool = False,
) -> Enqueued:
    """Write the message and its event; ``home`` is where it was put, and keeps its dedupe key."""
    now, settings = tx.now, queue.settings
    due = now + put.delay
    error = None
    state, due_at = (DELAYED, due) if put.delay > 0 else (READY, None)
    ordering_key = put.ordering_key if settings.ordering == "per-key" else None
    if overflowed:
        state, due_at = DEAD, None
        error = {"type": "QueueFull", "module": None, "message": f"queue {queue.name!r} was full"}
    elif ordering_key is not None:
        tx.write_messages()
        if tx.db.execute(SQL.key_is_taken, (queue.id, ordering_key)).fetchone():
            state, due_at = HELD, due
    ttl = settings.ttl if put.ttl is None else put.ttl
    expires_at = None if ttl is None or overflowed else now + ttl
    seq = tx.seq + 1
    body = _place_body(tx, queue, put, seq, shared)
    keeps = settings.keeps_payloads
    tx.event(
        ENQUEUED, queue.id, 0, entered=state, error=error, body=body if keeps else None,
        detail=beside_the_value(put) if keeps else None,
    )  # fmt: skip
    codec = None if put.codec == "json" else put.codec
    rank = -put.priority if settings.ordering == "priority" else 0
    tx.messages.append(
        (
            seq, queue.id, state, rank, now if overflowed else due, due_at, now, expires_at,
            now if overflowed else None, None if error is None else json.dumps(error), key,
            ordering_key, None if ordering_key is None else seq, seq,
            None if home.id == queue.id else home.id, None, put.id, codec,
            seal(checksum(put.body, put.headers, codec), seq, queue.id), body, put.headers,
            None if body is not None else put.body,
        )
    )  # fmt: skip
    if key is not None:
        remember_key(tx, home, put, key, seq)
    if state in (READY, DELAYED):
        # A delayed one too: who sleeps until the next due time has to set it anew.
        tx.ready.add(queue.id)
    message = StoredMessage(
        put.id or tx.file.identity.public(seq), queue.name, put.body, put.codec, put.headers,
        PUBLIC_STATE[state], 0, now, due, None, None, error, now if overflowed else None, [], key,
        -rank, ordering_key, expires_at, 0, 0, 0,
    )  # fmt: skip
    return Enqueued(message, Fate.STORED, queue.version)


def beside_the_value(put: Put) -> dict[str, Any] | None:
    """What a journal that keeps payloads keeps of a message as well; None when that is nothing.

    With the value it is all that is needed to put the message again.
    """
    kept: dict[str, Any] = {}
    if put.headers is not None:
        kept["headers"] = decode_headers(put.headers)
    if put.priority:
        kept["priority"] = put.priority
    if put.ordering_key is not None:
        kept["ordering_key"] = put.ordering_key
    if put.codec != "json":
        kept["codec"] = put.codec
    return kept or None


def existing(tx: Transaction, queue: QueueRow, put: Put, number: int) -> Enqueued:
    """The message that is there already; of one that is gone, its id with the caller's value."""
    tx.write_messages()
    for place in [*overflow_chain(tx, queue), *subscriber_queues(tx, queue)]:
        row = read_row(tx, place, number)
        if row is not None:
            found = stored_message(tx.file.identity, place.name, row, ended_attempts(tx, row))
            # Finding a key taken is no lease: what is returned proves nothing.
            return Enqueued(found._replace(token=0), Fate.DUPLICATE, queue.version)
    return Enqueued(_unstored(tx, queue, put, number), Fate.DUPLICATE, queue.version)


def overflow_chain(tx: Transaction, queue: QueueRow) -> list[QueueRow]:
    """The queue, and where its messages go when it is full."""
    chain = [queue]
    while chain[-1].settings.overflow == "overflow":
        name = chain[-1].settings.overflow_to
        after = None if name is None else tx.queue(name)
        if after is None or after in chain:
            break
        chain.append(after)
    return chain


def subscriber_queues(tx: Transaction, topic: QueueRow) -> list[QueueRow]:
    """The queues that a topic hands out to, in the order they subscribed."""
    if topic.settings.fanout is None:
        return []
    numbers = tx.db.execute(SQL.subscriptions, (topic.id,)).fetchall()
    return [use_queue(tx, tx.queue_name(number)) for number, _, _, _ in numbers]


def _drop(tx: Transaction, queue: QueueRow, put: Put) -> Enqueued:
    seq = tx.event(DROPPED, queue.id, 0)
    return Enqueued(_unstored(tx, queue, put, seq), Fate.DROPPED, queue.version)


def _unstored(tx: Transaction, queue: QueueRow, put: Put, number: int) -> StoredMessage:
    fields: dict[str, Any] = dict.fromkeys(StoredMessage._fields)
    fields.update(
        id=tx.file.identity.public(number), queue=queue.name, body=put.body, codec=put.codec,
        headers=put.headers, state=PUBLIC_STATE[READY], attempts=0, created_at=tx.now,
        available_at=tx.now + put.delay, history=[], dedupe_key=put.dedupe_key,
        priority=put.priority, ordering_key=put.ordering_key, failures=0, crashes=0, token=0,
        damaged=False,
    )  # fmt: skip
    return StoredMessage(**fields)


def _place_body(
    tx: Transaction, queue: QueueRow, put: Put, seq: int, shared: SharedBody | None
) -> int | None:
    """Where the value goes: None for the row itself."""
    keeps = queue.settings.keeps_payloads
    if shared is None and not keeps and len(put.body) <= LARGEST_INLINE:
        return None
    if shared is None or shared.number is None:
        add_body(tx, seq, put.body, 1)
        number = seq
        if shared is not None:
            shared.number = seq
    else:
        number = shared.number
        use_body(tx, number)
    if keeps:
        use_body(tx, number)
    return number


def store_request(tx: Transaction, queue: QueueRow, put: Put, answer: Enqueued) -> None:
    """Remember which message this request made, so that a repeated one is answered with it."""
    if answer.fate is not Fate.DROPPED:
        tx.write_messages()
        place = tx.queue(answer.message.queue)
        number = None if place is None else find_number(tx, place, answer.message.id)
        if number is not None:
            remember_request(tx, queue, put, number)
