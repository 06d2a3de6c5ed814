"""Bad input gets the documented error of the tree, and nothing is changed by it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from localqueue.codec import BytesCodec, JsonCodec
from localqueue.errors import (
    ConfigurationError,
    InvalidArgument,
    InvalidMessage,
    InvalidMessageType,
    JournalForeign,
    LocalQueueError,
    WrongType,
)
from localqueue.message import QueueMessage
from localqueue.policies.backpressure import BoundedBackpressure
from localqueue.policies.deduplication import NoDeduplication
from localqueue.policies.journal import Journal
from localqueue.policies.ordering import OrderingKeys, PriorityOrdering
from localqueue.policies.routing import PublishSubscribeRouting
from localqueue.policies.subscriptions import DynamicFanoutSubscriptions
from localqueue.queue import PersistentQueue
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.protocol import LARGEST_BATCH, Cancelled, QueueStore
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.testing.clock import ManualClock

LONE_SURROGATE = "\ud800"
LONGEST_KEY = 1_000

Queue = PersistentQueue[Any]
Call = Callable[[Queue, "Known"], object]


class Known(NamedTuple):
    """The messages that are there before the call."""

    waiting: QueueMessage[Any]
    leased: QueueMessage[Any]
    dead: QueueMessage[Any]


class Bad(NamedTuple):
    call: Call
    error: type[Exception]
    options: Mapping[str, Any] = MappingProxyType({})


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def circle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


PRIORITY = {"ordering_policy": PriorityOrdering()}
KEYS = {"ordering_policy": OrderingKeys()}
TOPIC = {
    "routing_policy": PublishSubscribeRouting(),
    "subscription_policy": DynamicFanoutSubscriptions(),
    "journal_policy": Journal(payloads=True),
}

VALUES: dict[str, tuple[Any, type[Exception]]] = {
    "an object": (object(), InvalidMessage),
    "a set": ({1, 2}, InvalidMessage),
    "bytes": (b"x", InvalidMessage),
    "NaN": (math.nan, InvalidMessage),
    "infinity": ([math.inf], InvalidMessage),
    "minus infinity": ({"a": -math.inf}, InvalidMessage),
    "a lone surrogate": (LONE_SURROGATE, InvalidMessage),
    "a lone surrogate as key": ({LONE_SURROGATE: 1}, InvalidMessage),
    "a key that is a tuple": ({(1, 2): 3}, InvalidMessage),
    "one level too deep": (nested(101), InvalidMessage),
    "far too deep": (nested(100_000), InvalidMessage),
    "a list that holds itself": (circle(), InvalidMessage),
    "too large": ("x" * (16 * 1024 * 1024), InvalidMessage),
}
SECONDS: dict[str, tuple[Any, type[Exception]]] = {
    "negative": (-1, InvalidArgument),
    "NaN": (math.nan, InvalidArgument),
    "infinite": (math.inf, InvalidArgument),
    "a string": ("1", WrongType),
    "a bool": (True, WrongType),
    "a complex number": (1j, WrongType),
    "longer than ten years": (1e12, InvalidArgument),
}
TIMEOUTS: dict[str, tuple[Any, type[Exception]]] = {
    "negative": (-0.5, InvalidArgument),
    "NaN": (math.nan, InvalidArgument),
    "a string": ("1", WrongType),
    "a bool": (True, WrongType),
}
COUNTS: dict[str, tuple[Any, type[Exception]]] = {
    "negative": (-1, InvalidArgument),
    "a bool": (True, WrongType),
    "a fraction": (1.5, WrongType),
    "a string": ("3", WrongType),
}
KEY_VALUES: dict[str, tuple[Any, type[Exception]]] = {
    "empty": ("", InvalidMessage),
    "too long": ("x" * (LONGEST_KEY + 1), InvalidMessage),
    "a lone surrogate": (LONE_SURROGATE, InvalidMessage),
    "a number": (5, InvalidMessageType),
    "bytes": (b"k", InvalidMessageType),
}
PRIORITIES: dict[str, tuple[Any, type[Exception]]] = {
    "negative": (-1, InvalidMessage),
    "too high": (2**31, InvalidMessage),
    "a bool": (True, InvalidMessageType),
    "a fraction": (1.5, InvalidMessageType),
    "a string": ("1", InvalidMessageType),
    "nothing": (None, InvalidMessageType),
}
HEADERS: dict[str, tuple[Any, type[Exception]]] = {
    "a list": ([("a", "b")], InvalidMessageType),
    "a value that is no text": ({"a": 1}, InvalidMessageType),
    "a name that is no text": ({1: "a"}, InvalidMessageType),
    "an empty name": ({"": "a"}, InvalidMessage),
    "a lone surrogate": ({"a": LONE_SURROGATE}, InvalidMessage),
    "too many": ({str(number): "x" for number in range(65)}, InvalidMessage),
    "too large": ({"a": "x" * 20_000}, InvalidMessage),
}
SUBSCRIBERS: dict[str, tuple[Any, type[Exception]]] = {
    "empty": ("", InvalidArgument),
    "a dot": ("a.b", InvalidArgument),
    "a colon": ("a:b", InvalidArgument),
    "too long": ("x" * 201, InvalidArgument),
    "a control character": ("a\nb", InvalidArgument),
    "a lone surrogate": (LONE_SURROGATE, InvalidArgument),
    "a number": (5, WrongType),
}

BAD: dict[str, Bad] = {
    "put, priority without PriorityOrdering": Bad(
        lambda q, _: q.put(1, priority=1), InvalidMessage
    ),
    "put, ordering_key without OrderingKeys": Bad(
        lambda q, _: q.put(1, ordering_key="k"), InvalidMessage
    ),
    "put, dedupe_key without deduplication": Bad(
        lambda q, _: q.put(1, dedupe_key="k"),
        InvalidMessage,
        {"deduplication_policy": NoDeduplication()},
    ),
    "put, bytes codec: text": Bad(
        lambda q, _: q.put("text"), InvalidMessageType, {"codec_policy": BytesCodec()}
    ),
    "put, bytes codec: too large": Bad(
        lambda q, _: q.put(b"12345"), InvalidMessage, {"codec_policy": BytesCodec(max_bytes=4)}
    ),
    "put, a smaller limit: too large": Bad(
        lambda q, _: q.put("12345"), InvalidMessage, {"codec_policy": JsonCodec(max_bytes=6)}
    ),
    "put, a smaller limit: too deep": Bad(
        lambda q, _: q.put([[1]]), InvalidMessage, {"codec_policy": JsonCodec(max_depth=1)}
    ),
    "put_many, one of them": Bad(lambda q, _: q.put_many([1, math.nan, 2]), InvalidMessage),
    "put_many, too many": Bad(lambda q, _: q.put_many(range(LARGEST_BATCH + 1)), InvalidMessage),
    "put_many, too large together": Bad(
        lambda q, _: q.put_many(["x" * 6_000_000] * 3), InvalidMessage
    ),
    "put_many, more than can ever fit": Bad(
        lambda q, _: q.put_many(range(11)),
        InvalidMessage,
        {"backpressure": BoundedBackpressure(maxsize=10)},
    ),
    "put_many, a key that is made badly": Bad(
        lambda q, _: q.put_many([1, 2], dedupe_key=lambda value: "x" * value * 900), InvalidMessage
    ),
    "put_many, an ordering key that is no text": Bad(
        lambda q, _: q.put_many([1, 2], ordering_key=lambda value: value),
        InvalidMessageType,
        KEYS,
    ),
    "put_stream, chunk 0": Bad(lambda q, _: q.put_stream([1], chunk=0), InvalidArgument),
    "get_messages, 0": Bad(lambda q, _: q.get_messages(0), InvalidArgument),
    "extend, 0 seconds": Bad(lambda q, m: q.extend(m.leased, 0), InvalidArgument),
    "journal, limit 0": Bad(lambda q, _: q.journal(limit=0), InvalidArgument),
    "journal, after nonsense": Bad(lambda q, _: q.journal(after="nonsense"), JournalForeign),
    "journal, after a lone surrogate": Bad(
        lambda q, _: q.journal(after=LONE_SURROGATE), JournalForeign
    ),
    "journal, after what is to come": Bad(
        lambda q, m: q.journal(after=m.dead.id[:16] + "f" * 16), JournalForeign
    ),
    "task_done, too often": Bad(lambda q, _: q.task_done(), InvalidArgument),
    "heartbeat, empty": Bad(lambda q, _: q.record_worker_heartbeat(""), InvalidArgument),
    "subscribe, no topic": Bad(lambda q, _: q.subscribe("a"), ConfigurationError),
    "unsubscribe, no topic": Bad(lambda q, _: q.unsubscribe("a"), ConfigurationError),
    "subscriber_queue, no topic": Bad(lambda q, _: q.subscriber_queue("a"), ConfigurationError),
    "ack, a message of another queue": Bad(
        lambda q, m: q.ack(_elsewhere(m.leased)), InvalidArgument
    ),
    "release, a message of another queue": Bad(
        lambda q, m: q.release(_elsewhere(m.leased)), InvalidArgument
    ),
}


def _elsewhere(message: QueueMessage[Any]) -> QueueMessage[Any]:
    return QueueMessage(message.id, message.value, "another", token=message.token)


def _put_with(name: str, bad: Any) -> Call:
    return lambda q, _: q.put(1, **{name: bad})


def _with(method: str, bad: Any, who: str | None = None) -> Call:
    def call(queue: Queue, known: Known) -> object:
        arguments = [bad] if who is None else [getattr(known, who), bad]
        return getattr(queue, method)(*arguments)

    return call


def _named(method: str, name: str, bad: Any) -> Call:
    return lambda q, _: getattr(q, method)(**{name: bad})


for what, (value, error) in VALUES.items():
    BAD[f"put, {what}"] = Bad(_with("put", value), error)
for what, (value, error) in SECONDS.items():
    BAD[f"put, delay {what}"] = Bad(_put_with("delay", value), error)
    BAD[f"put, ttl {what}"] = Bad(_put_with("ttl", value), error)
    BAD[f"release, delay {what}"] = Bad(_with("release", value, "leased"), error)
    BAD[f"extend, timeout {what}"] = Bad(_with("extend", value, "leased"), error)
    BAD[f"requeue_dead, delay {what}"] = Bad(_with("requeue_dead", value, "dead"), error)
    BAD[f"requeue_dead_letters, delay {what}"] = Bad(
        _named("requeue_dead_letters", "delay", value), error
    )
    BAD[f"prune_dead_letters, {what}"] = Bad(_with("prune_dead_letters", value), error)
    BAD[f"count_dead_letters_older_than, {what}"] = Bad(
        _with("count_dead_letters_older_than", value), error
    )
BAD["put, ttl 0"] = Bad(_put_with("ttl", 0), InvalidArgument)
for what, (value, error) in TIMEOUTS.items():
    for method in ("put", "get", "get_message", "get_messages"):
        first: tuple[Any, ...] = {"put": (1,), "get_messages": (1,)}.get(method, ())
        BAD[f"{method}, timeout {what}"] = Bad(
            lambda q, _, method=method, first=first, value=value: getattr(q, method)(  # type: ignore[misc]
                *first, timeout=value
            ),
            error,
        )
for what, (value, error) in COUNTS.items():
    for method in ("peek", "get_messages", "dead_letters", "requeue_dead_letters"):
        BAD[f"{method}, {what}"] = Bad(_with(method, value), error)
    BAD[f"journal, limit {what}"] = Bad(_named("journal", "limit", value), error)
    BAD[f"put_stream, chunk {what}"] = Bad(
        lambda q, _, value=value: q.put_stream([1], value),  # type: ignore[misc]
        error,
    )
for what, (value, error) in KEY_VALUES.items():
    BAD[f"put, dedupe_key {what}"] = Bad(_put_with("dedupe_key", value), error)
    BAD[f"put, ordering_key {what}"] = Bad(_put_with("ordering_key", value), error, KEYS)
    BAD[f"put, request_id {what}"] = Bad(_put_with("request_id", value), error)
    BAD[f"get_message, leased_by {what}"] = Bad(_named("get_message", "leased_by", value), error)
    if what != "empty":
        BAD[f"heartbeat, {what}"] = Bad(_with("record_worker_heartbeat", value), error)
for what, (value, error) in PRIORITIES.items():
    BAD[f"put, priority {what}"] = Bad(_put_with("priority", value), error, PRIORITY)
for what, (value, error) in HEADERS.items():
    BAD[f"put, headers {what}"] = Bad(_put_with("headers", value), error)
for what, (value, error) in SUBSCRIBERS.items():
    BAD[f"subscribe, {what}"] = Bad(_with("subscribe", value), error, TOPIC)
BAD["subscribe, start nonsense"] = Bad(
    lambda q, _: q.subscribe("late", "nonsense"), JournalForeign, TOPIC
)
BAD["put, a topic without subscribers"] = Bad(lambda q, _: q.put(1), InvalidMessage, TOPIC)
for what, nobody in {"a number": 5, "nothing": None, "an object": object()}.items():
    for method in ("ack", "release", "dead_letter", "extend", "cancel", "requeue_dead"):
        BAD[f"{method}, {what}"] = Bad(_with(method, nobody), WrongType)
    for method in ("inspect", "history"):
        BAD[f"{method}, {what}"] = Bad(_with(method, nobody), WrongType)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[QueueStore]:
    store: MemoryQueueStore | SQLiteQueueStore = MemoryQueueStore()
    if request.param == "sqlite":
        store = SQLiteQueueStore(tmp_path / "queue.sqlite3", durability="relaxed")
    yield store
    store.close()


def prepared(store: QueueStore, options: Mapping[str, Any]) -> tuple[Queue, Known]:
    """A queue with one message in each state, put there before its policies are."""
    clock = ManualClock()
    plain: Queue = PersistentQueue("jobs", store=store, clock=clock)
    leased, dead = plain.put_many(["leased", "dead"])
    [held] = plain.get_messages(1)
    assert held.id == leased.id
    assert plain.dead_letter(dead, error="no")
    waiting = plain.put("waiting")
    queue: Queue = PersistentQueue("jobs", store=store, clock=clock, **options)
    queue.settings()  # the first use writes what was configured
    return queue, Known(waiting, held, dead)


def picture(store: QueueStore, queue: Queue) -> tuple[object, ...]:
    return (
        queue.stats(),
        store.journal_end(),
        queue.peek(10),
        queue.dead_letters(),
        queue.settings(),
        store.queues(),
        queue.subscribers(),
    )


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_its_error_and_changes_nothing(name: str, store: QueueStore) -> None:
    bad = BAD[name]
    queue, known = prepared(store, bad.options)
    before = picture(store, queue)

    with pytest.raises(bad.error) as raised:
        bad.call(queue, known)

    assert isinstance(raised.value, LocalQueueError)
    assert picture(store, queue) == before
    assert queue.ack(known.leased), "the lease is held as before"


UNKNOWN_IDS: dict[str, Callable[[Known], str]] = {
    "empty": lambda known: "",
    "short": lambda known: "abc",
    "no hex digits": lambda known: "g" * 32,
    "a lone surrogate": lambda known: LONE_SURROGATE,
    "32 lone surrogates": lambda known: LONE_SURROGATE * 32,
    "a NUL": lambda known: "\0" * 32,
    "far too high a number": lambda known: known.dead.id[:16] + "f" * 16,
    "a negative number": lambda known: known.dead.id[:16] + "-" + "0" * 14 + "1",
    "an underscore in the number": lambda known: known.dead.id[:-2] + "_" + known.dead.id[-1],
    "in capitals": lambda known: known.dead.id[:-1] + "F",
    "of another store": lambda known: "0" * 16 + known.dead.id[16:],
    "very long": lambda known: known.dead.id * 1_000,
}


@pytest.mark.parametrize("name", UNKNOWN_IDS)
def test_an_id_of_no_message_finds_nothing_and_changes_nothing(
    name: str, store: QueueStore
) -> None:
    queue, known = prepared(store, {})
    unknown = UNKNOWN_IDS[name](known)
    before = picture(store, queue)

    answers = [
        queue.ack(unknown),
        queue.release(unknown),
        queue.dead_letter(unknown, error="no"),
        queue.requeue_dead(unknown),
    ]

    assert answers == [False] * 4
    assert queue.cancel(unknown) is Cancelled.UNKNOWN
    assert queue.inspect(unknown) is None
    assert queue.history(unknown) == []
    assert picture(store, queue) == before


NAMES: dict[str, tuple[Any, type[Exception]]] = {
    "empty": ("", InvalidArgument),
    "white space": ("  ", InvalidArgument),
    "white space at its end": ("jobs ", InvalidArgument),
    "a colon": ("a:b", InvalidArgument),
    "a control character": ("a\nb", InvalidArgument),
    "a NUL": ("a\0b", InvalidArgument),
    "a lone surrogate": (LONE_SURROGATE, InvalidArgument),
    "too long": ("x" * 201, InvalidArgument),
    "a number": (5, WrongType),
    "bytes": (b"jobs", WrongType),
}
CONSTRUCTION: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    **{f"name, {what}": ({"name": name}, error) for what, (name, error) in NAMES.items()},
    **{
        f"lease_timeout {what}": ({"name": "jobs", "lease_timeout": value}, error)
        for what, (value, error) in [*SECONDS.items(), ("zero", (0, InvalidArgument))]
    },
    **{
        f"maxsize {what}": ({"name": "jobs", "maxsize": value}, error)
        for what, (value, error) in COUNTS.items()
    },
    "no name": ({}, ConfigurationError),
    "store and store_path": (
        {"name": "jobs", "store": "memory://", "store_path": "x"},
        ConfigurationError,
    ),
    "retry_defaults that are no mapping": ({"name": "jobs", "retry_defaults": [1]}, WrongType),
    "an unknown store": ({"name": "jobs", "store": "nonsense://x"}, LocalQueueError),
    "a store that is none": ({"name": "jobs", "store": 5}, LocalQueueError),
}


@pytest.mark.parametrize("name", CONSTRUCTION)
def test_a_queue_that_cannot_be_is_refused_before_a_file_is_made(name: str, tmp_path: Path) -> None:
    options, error = CONSTRUCTION[name]
    path = tmp_path / "queue.sqlite3"
    if "store" not in options:
        options = {**options, "store_path": path}

    with pytest.raises(error) as raised:
        PersistentQueue[Any](**options)

    assert isinstance(raised.value, LocalQueueError)
    assert isinstance(raised.value, (ValueError, TypeError))
    assert list(tmp_path.iterdir()) == []


class LaxCodec(JsonCodec):
    """A planted defect: what is not JSON is stored as the text that Python has for it."""

    def encode(self, value: Any) -> bytes:
        try:
            return super().encode(value)
        except InvalidMessage:
            return repr(value).encode("utf-8", "replace")


def test_the_test_finds_a_codec_that_takes_anything(store: QueueStore) -> None:
    queue, known = prepared(store, {"codec_policy": LaxCodec()})
    before = picture(store, queue)

    BAD["put, NaN"].call(queue, known)

    assert picture(store, queue) != before


def test_the_test_finds_a_batch_that_is_stored_up_to_its_bad_value(store: QueueStore) -> None:
    """A planted defect: one by one instead of all or none."""
    queue, _ = prepared(store, {})
    before = picture(store, queue)

    def put_many() -> None:
        for value in (1, math.nan, 2):
            queue.put(value)

    with pytest.raises(InvalidMessage):
        put_many()

    assert picture(store, queue) != before
