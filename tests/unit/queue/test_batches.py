"""Many at once: all or nothing for puts, one answer each for the rest."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Full

import pytest

from localqueue.errors import InvalidArgument, InvalidMessage
from localqueue.policies import OrderingKeys, PriorityOrdering, RejectingBackpressure
from localqueue.testing import ManualClock
from tests.unit.queue.phrases import NewQueue, Queue, WatchedStore, blocked, drain, kinds, values


def test_a_batch_is_stored_in_its_order_and_told_message_by_message(queue: Queue) -> None:
    messages = queue.put_many(["a", "b", "c"])

    assert values(messages) == ["a", "b", "c"]
    assert [queue.inspect(message.id) for message in messages] == messages
    assert drain(queue) == ["a", "b", "c"]


def test_a_batch_takes_any_iterable_and_an_empty_one_does_nothing(queue: Queue) -> None:
    assert queue.put_many([]) == []
    assert queue.put_many(iter(())) == []
    assert len(queue.put_many(str(n) for n in range(3))) == 3


def test_one_value_that_cannot_be_stored_refuses_the_batch(queue: Queue) -> None:
    with pytest.raises(InvalidMessage):
        queue.put_many(["good", object(), "good"])

    assert queue.stats().total == 0


def test_a_batch_shares_its_options(new_queue: NewQueue, clock: ManualClock) -> None:
    queue = new_queue(ordering_policy=PriorityOrdering())

    messages = queue.put_many(
        [1, 2], delay=5, priority=3, headers={"from": "import"}, ttl=60, timeout=1
    )

    for message in messages:
        assert message.available_at == clock.wall() + 5
        assert (message.priority, message.headers) == (3, {"from": "import"})
        assert message.expires_at == clock.wall() + 60
        assert queue.inspect(message.id) == message


def test_keys_may_be_functions_of_the_value(new_queue: NewQueue) -> None:
    queue = new_queue(ordering_policy=OrderingKeys())

    messages = queue.put_many(
        [{"user": "a", "n": 1}, {"user": "a", "n": 2}, {"user": "b", "n": 1}],
        dedupe_key=lambda value: f"{value['user']}-{value['n']}",
        ordering_key=lambda value: value["user"],
    )

    assert [message.dedupe_key for message in messages] == ["a-1", "a-2", "b-1"]
    assert queue.qsize() == 2
    assert queue.stats().held == 1


def test_a_key_that_comes_twice_in_a_batch_is_one_message(queue: Queue) -> None:
    first, second, third = queue.put_many(["a", "b", "c"], dedupe_key=lambda v: "k" + v[:0])

    assert [first.duplicate, second.duplicate, third.duplicate] == [False, True, True]
    assert first.id == second.id == third.id
    assert queue.qsize() == 1


def test_a_batch_that_can_never_fit_is_refused_with_what_to_do(new_queue: NewQueue) -> None:
    queue = new_queue(maxsize=2)

    with pytest.raises(InvalidMessage, match="put_stream"):
        queue.put_many([1, 2, 3])

    assert queue.stats().total == 0


def test_a_batch_larger_than_a_transaction_may_be_is_refused_with_what_to_do(queue: Queue) -> None:
    with pytest.raises(InvalidMessage, match="put_stream"):
        queue.put_many(range(10_001))

    assert queue.stats().total == 0


# --- put_stream ---------------------------------------------------------------------------------
def test_a_stream_is_stored_chunk_by_chunk_and_counted(queue: Queue) -> None:
    progress: list[int] = []

    done = queue.put_stream((n for n in range(25)), 10, on_progress=progress.append)

    assert done == 25
    assert progress == [10, 20, 25]
    assert values(queue.peek(30)) == list(range(25))


def test_an_empty_stream_stores_nothing(queue: Queue) -> None:
    progress: list[int] = []

    assert queue.put_stream([], on_progress=progress.append) == 0
    assert progress == []


def test_after_an_error_the_chunks_before_it_are_stored(queue: Queue) -> None:
    def broken() -> Iterator[int]:
        yield from range(7)
        raise RuntimeError("the source failed")

    progress: list[int] = []
    with pytest.raises(RuntimeError, match="the source failed"):
        queue.put_stream(broken(), 3, on_progress=progress.append)

    assert progress == [3, 6]
    assert drain(queue) == [0, 1, 2, 3, 4, 5]


def test_a_value_that_cannot_be_stored_ends_the_stream_before_its_chunk(queue: Queue) -> None:
    with pytest.raises(InvalidMessage):
        queue.put_stream([1, 2, 3, object(), 5], 2)

    assert drain(queue) == [1, 2]


def test_a_chunk_never_holds_more_than_a_transaction_may(queue: Queue) -> None:
    large = "x" * 6_000_000
    progress: list[int] = []

    queue.put_stream([large] * 5, on_progress=progress.append)

    assert progress == [2, 4, 5]


def test_a_stream_waits_for_room_and_goes_on(new_queue: NewQueue, store: WatchedStore) -> None:
    queue = new_queue(maxsize=3)
    consumer = new_queue()

    stream = blocked(store, lambda: queue.put_stream(range(10)))
    seen = [consumer.get(timeout=20) for _ in range(10)]

    assert stream.result() == 10
    assert seen == list(range(10))


def test_a_stream_into_a_rejecting_queue_ends_where_it_is_full(new_queue: NewQueue) -> None:
    queue = new_queue(backpressure=RejectingBackpressure(4))

    with pytest.raises(Full):
        queue.put_stream(range(10), 2)

    assert drain(queue) == [0, 1, 2, 3]


def test_a_stream_takes_the_options_of_a_batch(new_queue: NewQueue, clock: ManualClock) -> None:
    queue = new_queue(ordering_policy=OrderingKeys())

    queue.put_stream(
        ["a1", "a2"],
        delay=1,
        headers={"h": "v"},
        ttl=9,
        ordering_key=lambda v: v[0],
        dedupe_key=str,
    )
    clock.advance(1)

    message = queue.get_message(block=False)
    assert (message.value, message.ordering_key, message.dedupe_key) == ("a1", "a", "a1")
    assert (message.headers, message.expires_at) == ({"h": "v"}, clock.wall() + 8)


def test_a_chunk_of_nothing_is_refused(queue: Queue) -> None:
    with pytest.raises(InvalidArgument, match="chunk must be at least 1"):
        queue.put_stream([1], 0)


# --- getting and settling -----------------------------------------------------------------------
def test_a_batch_is_leased_in_order_and_acknowledged_in_one_transaction(queue: Queue) -> None:
    queue.put_many(range(4))
    messages = queue.get_messages(10)
    end = queue.journal()[-1].position

    assert queue.ack_many(messages) == [True] * 4

    assert kinds(queue.journal(after=end)) == ["acked"] * 4
    assert queue.stats().total == 0


def test_acknowledging_many_answers_one_by_one(queue: Queue, clock: ManualClock) -> None:
    queue.put_many(["stale", "held"])
    stale = queue.get_message()
    clock.advance(30)
    held, taken = queue.get_messages(10)
    assert taken.id == stale.id

    answers = queue.ack_many([stale, held, "0" * 32, held])

    assert answers == [False, True, False, False]
    assert values([taken]) == ["stale"]
    assert queue.stats().inflight == 1


def test_acknowledging_nothing_answers_nothing(queue: Queue) -> None:
    assert queue.ack_many([]) == []


def test_a_batch_of_leases_is_numbered_message_by_message(queue: Queue) -> None:
    queue.put_many(range(3))

    messages = queue.get_messages(3, leased_by="w1")

    assert len({message.token for message in messages}) == 3
    assert {message.leased_by for message in messages} == {"w1"}
    assert queue.release(messages[1])
    assert queue.ack_many(messages) == [True, False, True]
