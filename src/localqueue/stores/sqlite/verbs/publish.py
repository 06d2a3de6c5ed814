"""Puts: to a queue, or through a topic to all its subscribers at once."""

from __future__ import annotations

from collections.abc import Sequence

from localqueue.codec import checksum
from localqueue.errors import InvalidMessage
from localqueue.stores.protocol import Enqueued, Fate, Put
from localqueue.stores.records import RecordChange
from localqueue.stores.sqlite.rows import seal, stored_message
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import PUBLISHED
from localqueue.stores.sqlite.verbs.alike import are_alike, insert_alike
from localqueue.stores.sqlite.verbs.bodies import add_body, use_body
from localqueue.stores.sqlite.verbs.capacity import Admitted, admit
from localqueue.stores.sqlite.verbs.dedupe import find_duplicate, remember_key
from localqueue.stores.sqlite.verbs.enqueue import (
    SharedBody,
    beside_the_value,
    check_batch,
    deliver,
    existing,
    repeated_request,
    store_request,
    subscriber_queues,
)
from localqueue.stores.sqlite.verbs.log import (
    Publication,
    as_row,
    last_offset,
    own_key,
    pass_over,
)
from localqueue.stores.sqlite.verbs.order import check_order
from localqueue.stores.sqlite.verbs.plain import (
    asks_for_nothing,
    insert_plain,
    insert_without_options,
    is_plain,
)
from localqueue.stores.sqlite.verbs.queues import use_queue
from localqueue.stores.sqlite.verbs.records import change_records
from localqueue.stores.sqlite.verbs.sweep import SELDOM, sweep_sometimes
from localqueue.stores.sqlite.view import QueueRow, Transaction


def enqueue_many(
    tx: Transaction, puts: Sequence[Put], *, bounded: bool = True
) -> Sequence[Enqueued]:
    """Store all or none. ``bounded=False`` is for follow-ups that capacity must not refuse."""
    if not puts:
        return []
    first = puts[0]
    queue = tx.queue(first.queue)
    if len(puts) == 1 and queue is not None and asks_for_nothing(queue, first):
        sweep_sometimes(tx, queue, SELDOM)
        return [insert_without_options(tx, queue, first)]
    check_batch(puts)
    queue = queue or use_queue(tx, first.queue)
    if len(puts) == 1 and is_plain(queue, first, bounded):
        sweep_sometimes(tx, queue, SELDOM)
        return [insert_plain(tx, queue, first)]
    sweep_sometimes(tx, queue)
    if are_alike(queue, puts, bounded):
        return insert_alike(tx, queue, puts)
    return [_enqueue(tx, use_queue(tx, put.queue), put, bounded) for put in puts]


def enqueue_with_records(
    tx: Transaction, puts: Sequence[Put], changes: Sequence[RecordChange]
) -> Sequence[Enqueued]:
    # Records first: a conflict is cheaper to find than to undo thousands of messages.
    change_records(tx, changes)
    return enqueue_many(tx, puts)


def _enqueue(tx: Transaction, queue: QueueRow, put: Put, bounded: bool) -> Enqueued:
    check_order(queue.settings, put)
    if put.request_id is None:
        return _hand_out(tx, queue, put, bounded)
    answer = repeated_request(tx, queue, put, put.request_id)
    if answer is None:
        answer = _hand_out(tx, queue, put, bounded)
        store_request(tx, queue, put, answer)
    return answer


def _hand_out(tx: Transaction, queue: QueueRow, put: Put, bounded: bool) -> Enqueued:
    if queue.settings.fanout is not None:
        answer = _publish(tx, queue, put, bounded)
    else:
        answer = deliver(tx, queue, put, key=put.dedupe_key, bounded=bounded)
    if answer.settings_version != queue.version:
        # The caller's own row, also when the message went elsewhere.
        answer = answer._replace(settings_version=queue.version)
    return answer


def _publish(tx: Transaction, topic: QueueRow, put: Put, bounded: bool) -> Enqueued:
    subscribers = subscriber_queues(tx, topic)
    if not subscribers:
        raise InvalidMessage("publish-subscribe routing requires configured subscribers")
    needs_place = put.delay > 0 or put.priority > 0 or put.ordering_key is not None
    if topic.settings.fanout == "cursor" and needs_place:
        raise InvalidMessage(
            "cursor fan-out delivers in publication order and takes no delay, priority or"
            ' ordering key; use PublishSubscribeRouting(fanout_mode="hybrid")'
        )
    if topic.settings.fanout == "copy" or needs_place:
        return _copy(tx, topic, subscribers, put, bounded)
    return _append(tx, topic, subscribers, put, bounded)


def _copy(
    tx: Transaction,
    topic: QueueRow,
    subscribers: list[QueueRow],
    put: Put,
    bounded: bool,
) -> Enqueued:
    """One message per subscriber; they share the value."""
    keeps = topic.settings.keeps_payloads
    shared = SharedBody() if len(subscribers) > 1 or keeps else None
    answers = [
        deliver(tx, queue, put, key=own_key(put.dedupe_key, queue), bounded=bounded, shared=shared)
        for queue in subscribers
    ]
    stored = [answer for answer in answers if answer.fate is Fate.STORED]
    if stored:
        seq = tx.event(
            PUBLISHED, topic.id, 0, n=len(stored), body=shared.number if keeps and shared else None,
            detail=beside_the_value(put) if keeps else None,
        )  # fmt: skip
        if keeps and shared is not None and shared.number is not None:
            # For subscribers who come later and start in the past.
            use_body(tx, shared.number)
            entry = _add_publication(tx, topic, put, seq, shared.number)
            _mark_copies(tx, stored, seq)
            if topic.settings.fanout != "copy":
                # Those who read the log have their copy already.
                for queue in subscribers:
                    pass_over(tx, queue, entry.offset)
    answer = min(answers, key=lambda answer: list(Fate).index(answer.fate))
    return answer._replace(
        delay=max(answer.delay for answer in answers),
        copies=tuple(answer.message for answer in stored),
    )


def _append(
    tx: Transaction,
    topic: QueueRow,
    subscribers: list[QueueRow],
    put: Put,
    bounded: bool,
) -> Enqueued:
    """One publication in the log; a subscriber that has the key already does not get it."""
    have: list[tuple[QueueRow, int]] = []
    takers: list[tuple[QueueRow, str | None]] = []
    for queue in subscribers:
        sweep_sometimes(tx, queue)
        key = own_key(put.dedupe_key, queue)
        number = None if key is None else find_duplicate(tx, queue, put, key)
        if number is None:
            takers.append((queue, key))
        else:
            have.append((queue, number))
    if not takers:
        return existing(tx, have[0][0], put, have[0][1])
    delay = 0.0
    for queue, _ in takers:
        if bounded and queue.settings.maxsize:
            admission = admit(tx, queue)
            if isinstance(admission, Admitted):
                delay = max(delay, admission.delay)
    seq = tx.event(
        PUBLISHED,
        topic.id,
        0,
        n=len(takers),
        body=tx.seq + 1 if topic.settings.keeps_payloads else None,
        detail=beside_the_value(put) if topic.settings.keeps_payloads else None,
    )
    add_body(tx, seq, put.body, 1)
    entry = _add_publication(tx, topic, put, seq, seq)
    for queue, _ in have:
        pass_over(tx, queue, entry.offset)
    for queue, key in takers:
        tx.ready.add(queue.id)
        if key is not None:
            remember_key(tx, queue, put, key, seq)
    copies = tuple(
        stored_message(tx.file.identity, queue.name, as_row(queue, topic.id, entry), [])
        for queue, _ in takers
    )
    return Enqueued(copies[0], Fate.STORED, topic.version, delay, copies)


def _add_publication(
    tx: Transaction, topic: QueueRow, put: Put, seq: int, body: int
) -> Publication:
    offset = last_offset(tx, topic.id) + 1
    ttl = topic.settings.ttl if put.ttl is None else put.ttl
    codec = None if put.codec == "json" else put.codec
    entry = Publication(
        offset,
        seq,
        tx.now,
        None if ttl is None else tx.now + ttl,
        put.dedupe_key,
        put.fingerprint,
        codec,
        seal(checksum(put.body, put.headers, codec), seq, topic.id),
        body,
        put.headers,
        put.body,
    )
    tx.db.execute(SQL.write_topic, (topic.id, offset))
    tx.db.execute(SQL.add_publication, (topic.id, *entry[:-1]))
    if topic.settings.keeps_payloads:
        use_body(tx, body)
    return entry


def _mark_copies(tx: Transaction, stored: list[Enqueued], publication: int) -> None:
    """So that one who subscribes again is not handed what it still has."""
    tx.write_messages()
    numbers = [tx.file.identity.seq(answer.message.id) for answer in stored]
    tx.db.executemany(SQL.mark_copy, [(publication, number) for number in numbers])
