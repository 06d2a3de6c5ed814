"""Short ways to say what a test does, so that each test reads as a sentence of the contract.

Time is store time and stands at ``NOW`` unless a test says otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from localqueue.codec import JSON_CODEC
from localqueue.message import NEVER_LEASED, Receipt
from localqueue.stores.protocol import (
    Enqueued,
    JournalEvent,
    LeaseRequest,
    Put,
    QueueStore,
    StoredMessage,
)

NOW = 1_700_000_000.0
QUEUE = "jobs"
BOOM = {"type": "ValueError", "module": "builtins", "message": "boom"}
LIVE_STATES = ("ready", "delayed", "held", "inflight", "dead")


class StoreCase:
    """What each part of the contract stands on. A subclass provides the fixture ``store``."""

    def reopen(self, store: QueueStore) -> QueueStore | None:
        """Close the store and open what it left behind; None when it does not survive."""
        return None

    def another(self) -> QueueStore | None:
        """A second, separate store of the same kind; None when there is only one."""
        return None

    def reopened(self, store: QueueStore) -> QueueStore:
        again = self.reopen(store)
        if again is None:
            pytest.skip("this store does not survive its closing")
        return again


def body(value: Any) -> bytes:
    return JSON_CODEC.encode(value)


def new_put(value: Any = "a", *, queue: str = QUEUE, **options: Any) -> Put:
    encoded = body(value)
    options.setdefault("fingerprint", JSON_CODEC.fingerprint(value, encoded))
    return Put(queue, encoded, **options)


def put(
    store: QueueStore, value: Any = "a", *, queue: str = QUEUE, now: float = NOW, **options: Any
) -> StoredMessage:
    return answer(store, value, queue=queue, now=now, **options).message


def answer(
    store: QueueStore, value: Any = "a", *, queue: str = QUEUE, now: float = NOW, **options: Any
) -> Enqueued:
    """Put one message and give back all that the store said."""
    [enqueued] = store.enqueue_many([new_put(value, queue=queue, **options)], now=now)
    return enqueued


def put_all(
    store: QueueStore,
    values_to_put: Iterable[Any],
    *,
    queue: str = QUEUE,
    now: float = NOW,
    **options: Any,
) -> list[StoredMessage]:
    """Put them in one batch."""
    puts = [new_put(value, queue=queue, **options) for value in values_to_put]
    return [enqueued.message for enqueued in store.enqueue_many(puts, now=now)]


def lease(
    store: QueueStore,
    limit: int = 1,
    *,
    queue: str | tuple[str, ...] = QUEUE,
    now: float = NOW,
    timeout: float = 30.0,
    **options: Any,
) -> list[StoredMessage]:
    queues = (queue,) if isinstance(queue, str) else queue
    return list(store.lease(LeaseRequest(queues, limit, timeout, **options), now=now))


def lease_one(
    store: QueueStore, *, queue: str = QUEUE, now: float = NOW, **options: Any
) -> StoredMessage:
    leased = lease(store, 1, queue=queue, now=now, **options)
    assert len(leased) == 1, f"nothing to lease in {queue!r}"
    return leased[0]


def drain(store: QueueStore, *, queue: str = QUEUE, now: float = NOW) -> list[Any]:
    """The values that can be had one after the other, each acknowledged before the next."""
    seen: list[Any] = []
    while leased := lease(store, 1, queue=queue, now=now):
        seen += values(leased)
        ack(store, *leased, now=now)
    return seen


def ack(store: QueueStore, *messages: StoredMessage | Receipt, now: float = NOW) -> list[bool]:
    return store.ack_many([receipt(message) for message in messages], now=now)


def release(
    store: QueueStore,
    *messages: StoredMessage | Receipt,
    delay: float = 0.0,
    error: dict[str, Any] | None = None,
    now: float = NOW,
) -> list[bool]:
    receipts = [receipt(message) for message in messages]
    return store.release_many(receipts, delay=delay, error=error, now=now)


def dead_letter(
    store: QueueStore,
    *messages: StoredMessage | Receipt,
    error: dict[str, Any] | None = None,
    now: float = NOW,
) -> list[bool]:
    receipts = [receipt(message) for message in messages]
    return store.dead_letter_many(receipts, error=error, now=now)


def put_dead(
    store: QueueStore,
    value: Any = "a",
    *,
    queue: str = QUEUE,
    now: float = NOW,
    error: dict[str, Any] | None = None,
    **options: Any,
) -> StoredMessage:
    """Put a message and make a dead letter of it."""
    message = put(store, value, queue=queue, now=now, **options)
    assert dead_letter(store, never_leased(message), error=error, now=now) == [True]
    return message


def receipt(message: StoredMessage | Receipt) -> Receipt:
    if isinstance(message, Receipt):
        return message
    return Receipt(message.queue, message.id, message.token)


def never_leased(message: StoredMessage) -> Receipt:
    """As of the message that ``put`` returned: it acts while nobody holds a lease."""
    return Receipt(message.queue, message.id, NEVER_LEASED)


def operator(message: StoredMessage) -> Receipt:
    """A bare id: it acts on whatever lease there is."""
    return Receipt(message.queue, message.id, None)


def value_of(message: StoredMessage) -> Any:
    return JSON_CODEC.decode(message.body)


def values(messages: Iterable[StoredMessage]) -> list[Any]:
    return [value_of(message) for message in messages]


def read(store: QueueStore, message: StoredMessage) -> StoredMessage:
    found = store.read(message.queue, message.id)
    assert found is not None, f"message {message.id} is gone"
    return found


def is_gone(store: QueueStore, message: StoredMessage) -> bool:
    return store.read(message.queue, message.id) is None


def events(
    store: QueueStore, queues: Sequence[str] | None = None, *, after: str | None = None
) -> list[JournalEvent]:
    """Everything in the journal but its own bookkeeping."""
    found: list[JournalEvent] = []
    while page := store.journal(queues, after=after, limit=1000):
        found += page
        after = page[-1].position
    return [event for event in found if event.kind != "counted"]


def kinds(found: Iterable[JournalEvent]) -> list[str]:
    return [event.kind for event in found]


def recount(store: QueueStore, queue: str = QUEUE) -> dict[str, int]:
    """How many messages each state has according to the transitions in the journal."""
    counts: Counter[str] = Counter()
    for event in events(store, [queue]):
        if event.from_state in LIVE_STATES:
            counts[event.from_state] -= event.n
        if event.to_state in LIVE_STATES:
            counts[event.to_state] += event.n
    return {state: counts[state] for state in LIVE_STATES}
