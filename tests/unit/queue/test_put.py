"""What a put stores, what it returns, and what it refuses."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from localqueue.errors import DuplicateConflict, InvalidMessage
from localqueue.message import State
from localqueue.policies import (
    DedupeKeySupport,
    MessageTTL,
    NoDeduplication,
    OrderingKeys,
    PriorityOrdering,
    QueuePolicySet,
)
from localqueue.queue import PersistentQueue
from localqueue.testing import ManualClock
from tests.unit.queue.phrases import NewQueue, Queue, WatchedSQLiteStore, drain, values


def test_put_returns_the_stored_message_ready_and_never_delivered(
    queue: Queue, clock: ManualClock
) -> None:
    message = queue.put({"job": 1})

    assert message.value == {"job": 1}
    assert (message.queue, message.state, message.attempts) == ("jobs", State.READY, 0)
    assert message.created_at == message.available_at == clock.wall()
    assert message.leased_until is None
    assert not message.duplicate
    assert not message.dropped
    assert queue.inspect(message.id) == message


def test_an_id_is_32_lowercase_hex_digits_and_nobody_elses(queue: Queue) -> None:
    ids = {queue.put("a").id for _ in range(20)} | {m.id for m in queue.put_many(["a"] * 20)}

    assert len(ids) == 40
    assert all(re.fullmatch(r"[0-9a-f]{32}", message_id) for message_id in ids)


@pytest.mark.parametrize(
    ("put", "got"),
    [
        (None, None),
        (0.1, 0.1),
        ("ünïcödé \0 \U0001f600", "ünïcödé \0 \U0001f600"),
        ([1, [2, {"a": None}]], [1, [2, {"a": None}]]),
        ((1, 2), [1, 2]),
        ({1: "one"}, {"1": "one"}),
        ("x" * 100_000, "x" * 100_000),
        (10**40, 10**40),
    ],
)
def test_a_value_comes_back_as_json_has_it(queue: Queue, put: Any, got: Any) -> None:
    queue.put(put)

    assert queue.get() == got


def test_a_value_that_is_changed_after_the_put_is_stored_as_it_was(queue: Queue) -> None:
    value = {"step": 1}
    queue.put(value)

    value["step"] = 2

    assert queue.get() == {"step": 1}


@pytest.mark.parametrize("value", [math.nan, math.inf, {1, 2}, b"bytes", object(), "\ud800"])
def test_a_value_that_is_no_json_is_refused_and_nothing_is_stored(queue: Queue, value: Any) -> None:
    with pytest.raises(InvalidMessage, match="must be JSON-serializable"):
        queue.put(value)

    assert queue.stats().total == 0


def test_a_delayed_message_is_shown_as_ready_later_and_delivered_then(
    queue: Queue, clock: ManualClock
) -> None:
    message = queue.put("later", delay=60)

    assert (message.state, message.available_at) == (State.READY, clock.wall() + 60)
    assert queue.empty()
    clock.advance(59.9)
    assert queue.empty()
    clock.advance(0.1)
    assert queue.get() == "later"


def test_what_the_reference_prints_positionally_is_accepted_positionally(
    new_queue: NewQueue, clock: ManualClock
) -> None:
    queue = new_queue(ordering_policy=PriorityOrdering())

    message = queue.put("a", False, None, 5.0, 3)

    assert (message.available_at, message.priority) == (clock.wall() + 5, 3)


def test_headers_travel_with_the_message(queue: Queue) -> None:
    queue.put("a", headers={"trace": "4bf9", "händler": "ü"})

    assert queue.get_message().headers == {"trace": "4bf9", "händler": "ü"}


def test_put_nowait_stores_like_put(queue: Queue) -> None:
    message = queue.put_nowait("a")

    assert queue.peek() == [message]


def test_a_put_is_seen_by_another_object_at_once(queue: Queue, new_queue: NewQueue) -> None:
    message = queue.put("a")

    assert new_queue().get_message().id == message.id


def test_a_put_survives_the_closing_of_the_store(
    file_store: WatchedSQLiteStore, clock: ManualClock
) -> None:
    message = PersistentQueue[Any]("jobs", store=file_store, clock=clock).put("a", delay=5)
    file_store.close()

    again = WatchedSQLiteStore(file_store.path)
    found = PersistentQueue[Any]("jobs", store=again, clock=clock).inspect(message.id)
    again.close()

    assert found == message


# --- dedupe keys --------------------------------------------------------------------------------
def test_a_second_put_of_a_key_returns_the_first_message_and_changes_nothing(
    new_queue: NewQueue,
) -> None:
    queue = new_queue(ordering_policy=PriorityOrdering())
    first = queue.put("first", dedupe_key="k", priority=1)

    second = queue.put("second", dedupe_key="k", priority=9, delay=60)

    assert (second.id, second.value, second.priority) == (first.id, "first", 1)
    assert second.duplicate
    assert queue.stats().total == 1
    assert queue.get() == "first"


def test_a_duplicate_shows_the_message_as_it_is_now_and_proves_no_lease(queue: Queue) -> None:
    queue.put("a", dedupe_key="k")
    leased = queue.get_message(leased_by="w1")

    duplicate = queue.put("a", dedupe_key="k")

    assert (duplicate.state, duplicate.attempts, duplicate.leased_by) == ("inflight", 1, "w1")
    assert not queue.ack(duplicate)
    assert queue.ack(leased)


def test_a_key_is_taken_while_its_message_is_dead_and_free_when_it_is_gone(queue: Queue) -> None:
    message = queue.put("a", dedupe_key="k")
    queue.dead_letter(message)

    assert queue.put("b", dedupe_key="k").duplicate
    assert queue.ack(message)
    assert not queue.put("b", dedupe_key="k").duplicate


def test_a_key_belongs_to_its_queue(new_queue: NewQueue) -> None:
    assert not new_queue("a").put(1, dedupe_key="k").duplicate
    assert not new_queue("b").put(1, dedupe_key="k").duplicate


def test_within_its_window_a_key_outlives_its_message(
    new_queue: NewQueue, clock: ManualClock
) -> None:
    queue = new_queue(deduplication_policy=DedupeKeySupport(window=3600))
    first = queue.put("a", dedupe_key="k")
    assert queue.ack(queue.get_message())

    clock.advance(3599)
    again = queue.put("b", dedupe_key="k")
    clock.advance(1)
    later = queue.put("c", dedupe_key="k")

    assert (again.id, again.value, again.duplicate) == (first.id, "b", True)
    assert (later.duplicate, queue.get()) == (False, "c")


def test_the_same_key_with_another_value_is_an_error_where_the_policy_says_so(
    new_queue: NewQueue,
) -> None:
    queue = new_queue(deduplication_policy=DedupeKeySupport(on_conflict="error"))
    queue.put({"a": 1, "b": 2}, dedupe_key="k")

    with pytest.raises(DuplicateConflict):
        queue.put({"a": 1}, dedupe_key="k")

    assert queue.put({"b": 2, "a": 1}, dedupe_key="k").duplicate
    assert queue.stats().total == 1


def test_a_key_is_refused_without_deduplication(new_queue: NewQueue) -> None:
    queue = new_queue(deduplication_policy=NoDeduplication())

    with pytest.raises(InvalidMessage, match="DedupeKeySupport"):
        queue.put("a", dedupe_key="k")

    assert queue.stats().total == 0


@pytest.mark.filterwarnings("ignore::localqueue.errors.CompatibilityWarning")
def test_effectively_once_requires_a_key(new_queue: NewQueue) -> None:
    queue = new_queue(policy_set=QueuePolicySet.effectively_once())

    with pytest.raises(InvalidMessage, match="requires a dedupe_key"):
        queue.put("a")

    assert queue.put("a", dedupe_key="k").dedupe_key == "k"


# --- request ids --------------------------------------------------------------------------------
def test_a_repeated_request_is_answered_with_its_message_for_a_day(
    queue: Queue, clock: ManualClock
) -> None:
    first = queue.put("a", request_id="r")
    assert queue.ack(queue.get_message())

    clock.advance(86_399)
    again = queue.put("a", request_id="r")
    clock.advance(1)

    assert (again.id, again.duplicate) == (first.id, True)
    assert not queue.put("a", request_id="r").duplicate


# --- order and time to live ---------------------------------------------------------------------
def test_a_priority_is_refused_without_priority_ordering(queue: Queue) -> None:
    with pytest.raises(InvalidMessage, match="priority requires PriorityOrdering"):
        queue.put("a", priority=1)

    assert queue.stats().total == 0


def test_an_ordering_key_is_refused_without_ordering_keys(queue: Queue) -> None:
    with pytest.raises(InvalidMessage, match="ordering_key requires OrderingKeys"):
        queue.put("a", ordering_key="k")

    assert queue.stats().total == 0


def test_messages_of_one_key_come_one_by_one_and_keys_side_by_side(new_queue: NewQueue) -> None:
    queue = new_queue(ordering_policy=OrderingKeys())
    for value in ("a1", "a2", "b1"):
        queue.put(value, ordering_key=value[0])

    a1, b1 = queue.get_messages(10)
    assert (a1.value, b1.value, a1.ordering_key) == ("a1", "b1", "a")
    queue.ack(a1)

    assert values(queue.get_messages(10)) == ["a2"]


def test_a_message_that_waits_too_long_is_gone(queue: Queue, clock: ManualClock) -> None:
    message = queue.put("a", ttl=10)
    queue.put("b")

    clock.advance(10)

    assert message.expires_at == clock.wall()
    assert drain(queue) == ["b"]
    assert queue.inspect(message.id) is None


def test_a_ttl_of_its_own_overrides_the_queues(new_queue: NewQueue, clock: ManualClock) -> None:
    queue = new_queue(expiry_policy=MessageTTL(10))
    queue.put("queue's")
    queue.put("own", ttl=20)

    clock.advance(10)

    assert drain(queue) == ["own"]
