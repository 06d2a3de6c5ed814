"""Leasing, looking and counting."""

from __future__ import annotations

from queue import Empty

import pytest

from localqueue.errors import InvalidArgument
from localqueue.message import State
from localqueue.policies import FixedLeaseTimeout, PriorityOrdering
from localqueue.testing import ManualClock
from tests.unit.queue.phrases import NewQueue, Queue, drain, values


def test_values_come_in_the_order_of_their_puts(queue: Queue) -> None:
    for number in range(5):
        queue.put(number)

    assert [queue.get() for _ in range(5)] == [0, 1, 2, 3, 4]


def test_a_lease_names_its_attempt_its_deadline_and_its_worker(
    new_queue: NewQueue, clock: ManualClock
) -> None:
    queue = new_queue(lease_timeout=45)
    put = queue.put("a")
    clock.advance(2)

    message = queue.get_message(leased_by="w1")

    assert (message.id, message.state, message.attempts) == (put.id, State.INFLIGHT, 1)
    assert (message.leased_by, message.leased_until) == ("w1", clock.wall() + 45)
    assert message.created_at == clock.wall() - 2
    assert message.attempt_history == [
        {"type": "leased", "at": clock.wall(), "attempt": 1, "leased_by": "w1"}
    ]


def test_a_lease_policy_sets_the_deadline_too(new_queue: NewQueue, clock: ManualClock) -> None:
    queue = new_queue(lease_policy=FixedLeaseTimeout(7))
    queue.put("a")

    assert queue.get_message().leased_until == clock.wall() + 7


def test_a_leased_message_is_nobody_elses_until_its_lease_ends(
    queue: Queue, new_queue: NewQueue, clock: ManualClock
) -> None:
    queue.put("a")
    queue.get_message()
    other = new_queue()

    clock.advance(29.9)
    with pytest.raises(Empty):
        other.get_message(block=False)
    clock.advance(0.1)
    again = other.get_message(block=False)

    assert (again.value, again.attempts) == ("a", 2)
    assert [entry["type"] for entry in again.attempt_history] == [
        "leased",
        "lease_expired",
        "leased",
    ]


def test_an_empty_queue_raises_empty_when_it_may_not_wait(queue: Queue) -> None:
    for attempt in (
        queue.get_nowait,
        lambda: queue.get(block=False),
        lambda: queue.get_message(False),
        lambda: queue.get_messages(5, block=False),
        lambda: queue.get(timeout=0),
    ):
        with pytest.raises(Empty):
            attempt()


def test_a_timeout_of_zero_takes_what_is_there(queue: Queue) -> None:
    queue.put("a")

    assert queue.get(timeout=0) == "a"


def test_a_negative_timeout_is_refused_even_when_a_message_is_there(queue: Queue) -> None:
    queue.put("a")

    with pytest.raises(InvalidArgument, match="'timeout' must be a non-negative number"):
        queue.get(timeout=-1)

    assert queue.qsize() == 1


def test_get_messages_leases_what_is_there_up_to_its_limit(queue: Queue) -> None:
    queue.put_many(range(5))

    assert values(queue.get_messages(3)) == [0, 1, 2]
    assert values(queue.get_messages(3)) == [3, 4]


def test_a_higher_priority_overtakes_and_equal_ones_keep_their_order(
    new_queue: NewQueue, clock: ManualClock
) -> None:
    queue = new_queue(ordering_policy=PriorityOrdering())
    for value, priority in (("low 1", 0), ("high 1", 5), ("low 2", 0), ("high 2", 5)):
        queue.put(value, priority=priority)
        clock.advance(1)

    assert drain(queue) == ["high 1", "high 2", "low 1", "low 2"]


def test_a_delayed_message_takes_its_place_by_the_time_it_became_due(
    queue: Queue, clock: ManualClock
) -> None:
    queue.put("delayed", delay=10)
    clock.advance(5)
    queue.put("early")
    clock.advance(6)
    queue.put("late")

    assert drain(queue) == ["early", "delayed", "late"]


def test_peeking_shows_what_comes_next_and_leases_nothing(queue: Queue) -> None:
    queue.put_many(["a", "b", "c"])

    assert values(queue.peek()) == ["a"]
    assert values(queue.peek(5)) == ["a", "b", "c"]
    assert queue.peek(0) == []
    assert (queue.stats().inflight, queue.peek()[0].attempts) == (0, 0)


def test_inspecting_shows_a_message_in_every_state_and_none_when_it_is_gone(queue: Queue) -> None:
    message = queue.put("a")
    shown = [queue.inspect(message.id)]
    leased = queue.get_message()
    shown.append(queue.inspect(message.id))
    queue.dead_letter(leased)
    shown.append(queue.inspect(message.id))
    queue.ack(message)

    assert [found.state for found in shown if found] == ["ready", "inflight", "dead"]
    assert queue.inspect(message.id) is None


def test_what_inspect_shows_proves_the_lease_that_is_held(queue: Queue) -> None:
    message = queue.put("a")
    queue.get_message()

    seen = queue.inspect(message.id)

    assert seen is not None
    assert seen.leased_until is not None
    assert queue.ack(seen)


def test_a_message_of_one_queue_is_not_shown_by_another(new_queue: NewQueue) -> None:
    message = new_queue("a").put(1)

    assert new_queue("b").inspect(message.id) is None


def test_size_and_emptiness_are_about_what_could_be_leased_now(
    queue: Queue, clock: ManualClock
) -> None:
    assert queue.empty()
    queue.put("ready")
    queue.put("leased")
    queue.get_message()
    queue.put("delayed", delay=60)

    assert (queue.qsize(), queue.empty()) == (1, False)
    clock.advance(30)
    assert queue.qsize() == 2, "the lease ended"
    clock.advance(30)
    assert queue.qsize() == 3, "the delay is over"


def test_stats_count_every_state_and_every_worker(queue: Queue, clock: ManualClock) -> None:
    queue.put_many(["a", "b", "c", "d"])
    queue.put("later", delay=60)
    queue.get_message(leased_by="w1")
    clock.advance(4)
    second = queue.get_message(leased_by="w2")
    queue.dead_letter(queue.get_message(leased_by="w2"))
    queue.record_worker_heartbeat("w1")

    stats = queue.stats()

    assert (stats.ready, stats.delayed, stats.inflight, stats.dead) == (1, 1, 2, 1)
    assert stats.total == 5
    assert stats.by_worker_id == {"w1": 1, "w2": 1}
    assert stats.leases_by_worker_id == {"w1": 1, "w2": 2}
    assert stats.last_seen_by_worker_id == {"w1": clock.wall()}
    assert (stats.oldest_ready_age_seconds, stats.oldest_inflight_age_seconds) == (4, 4)
    assert stats.average_inflight_age_seconds == 2
    queue.ack(second)
    assert queue.stats().leases_by_worker_id == {"w1": 1, "w2": 2}


def test_stats_only_read(queue: Queue, clock: ManualClock) -> None:
    queue.put("a")
    leased = queue.get_message()
    clock.advance(31)
    before = queue.journal()

    assert queue.stats().ready == 1

    assert queue.journal() == before
    assert queue.ack(leased), "nobody took the expired lease away"


def test_a_purge_removes_every_message_and_keeps_the_settings(new_queue: NewQueue) -> None:
    queue = new_queue(maxsize=10)
    queue.put_many(["a", "b"], dedupe_key=lambda value: str(value))
    queue.put("later", delay=60)
    leased = queue.get_message(leased_by="w1")

    assert queue.purge() == 3

    assert queue.stats().as_dict() == new_queue("never used").stats().as_dict()
    assert queue.settings().maxsize == 10
    assert not queue.ack(leased)
    assert not queue.put("a", dedupe_key="a").duplicate
