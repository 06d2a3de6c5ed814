"""Messages that were set aside: looked at, delivered again, or let go."""

from __future__ import annotations

from typing import Any

import pytest

from localqueue.errors import InvalidArgument
from localqueue.message import QueueMessage, State
from localqueue.policies import CrashLimit, MessageTTL, OrderingKeys
from localqueue.stores.protocol import LeaseRequest
from localqueue.testing import ManualClock
from tests.unit.queue.phrases import NewQueue, Queue, WatchedStore, values


def buried(queue: Queue, value: Any, error: str | None = "no") -> QueueMessage[Any]:
    queue.put(value)
    message = queue.get_message(leased_by="w1")
    assert queue.dead_letter(message, error)
    return message


def test_a_dead_letter_keeps_its_error_its_time_and_its_history(
    queue: Queue, clock: ManualClock
) -> None:
    buried(queue, "a")

    [letter] = queue.dead_letters()

    assert (letter.value, letter.state, letter.attempts) == ("a", State.DEAD, 1)
    assert (letter.failed_at, letter.failures) == (clock.wall(), 1)
    assert letter.last_error == {"type": None, "module": None, "message": "no"}
    assert [entry["type"] for entry in letter.attempt_history] == ["leased", "dead_lettered"]


def test_dead_letters_are_listed_oldest_first(queue: Queue, clock: ManualClock) -> None:
    early, late = queue.put_many(["failed last", "failed first"])
    queue.dead_letter(late, "x")
    clock.advance(1)
    queue.dead_letter(early, "x")

    assert values(queue.dead_letters()) == ["failed first", "failed last"]
    assert values(queue.dead_letters(limit=1)) == ["failed first"]
    assert queue.dead_letters(limit=0) == []


def test_a_negative_limit_is_refused(queue: Queue) -> None:
    with pytest.raises(InvalidArgument, match="limit cannot be negative"):
        queue.dead_letters(limit=-1)


def test_a_requeued_letter_has_a_fresh_budget_and_keeps_its_past(queue: Queue) -> None:
    buried(queue, "a")

    [letter] = queue.dead_letters()
    assert queue.requeue_dead(letter)

    again = queue.get_message(block=False)
    assert (again.failures, again.crashes, again.attempts) == (0, 0, 2)
    assert again.last_error == {"type": None, "module": None, "message": "no"}
    assert [entry["type"] for entry in again.attempt_history] == [
        "leased",
        "dead_lettered",
        "requeued",
        "leased",
    ]


def test_a_letter_is_requeued_by_its_id_and_with_a_delay(queue: Queue, clock: ManualClock) -> None:
    message = buried(queue, "a")

    assert queue.requeue_dead(message.id, 10)

    assert queue.empty()
    clock.advance(10)
    assert queue.get(block=False) == "a"


def test_only_dead_letters_can_be_requeued(queue: Queue) -> None:
    message = queue.put("a")

    assert not queue.requeue_dead(message)
    assert not queue.requeue_dead("0" * 32)
    assert queue.qsize() == 1


def test_all_letters_are_requeued_however_many_there_are(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localqueue.queue.REQUEUED_AT_ONCE", 2)
    for message in queue.put_many(range(5)):
        queue.dead_letter(message, "x")

    assert queue.requeue_dead_letters() == 5

    assert queue.dead_letters() == []
    assert sorted(values(queue.get_messages(10, block=False))) == [0, 1, 2, 3, 4]
    assert queue.requeue_dead_letters() == 0


def test_the_oldest_letters_are_requeued_first_and_may_wait(
    queue: Queue, clock: ManualClock
) -> None:
    for value in ("first", "second", "third"):
        buried(queue, value)
        clock.advance(1)

    assert queue.requeue_dead_letters(2, delay=10) == 2

    assert values(queue.dead_letters()) == ["third"]
    assert (queue.qsize(), queue.stats().delayed) == (0, 2)
    clock.advance(10)
    assert values(queue.get_messages(10, block=False)) == ["first", "second"]


def test_a_letter_that_fails_again_while_others_are_requeued_stays(
    queue: Queue, store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localqueue.queue.REQUEUED_AT_ONCE", 1)
    buried(queue, "fails again")
    requeue, came_back = store.requeue_dead_many, []

    def requeue_and_fail(*given: Any, **options: Any) -> list[bool]:
        answers = requeue(*given, **options)
        message = queue.get_message(block=False)
        came_back.append(message.value)
        queue.dead_letter(message, "again")
        return answers

    monkeypatch.setattr(store, "requeue_dead_many", requeue_and_fail)

    assert queue.requeue_dead_letters() == 1
    assert came_back == values(queue.dead_letters()) == ["fails again"]


def test_a_letter_that_somebody_else_took_meanwhile_is_not_counted(
    queue: Queue, store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go, stays = buried(queue, "let go"), buried(queue, "stays")
    requeue = store.requeue_dead_many

    def let_go_and_requeue(*given: Any, **options: Any) -> list[bool]:
        queue.ack(let_go.id)
        return requeue(*given, **options)

    monkeypatch.setattr(store, "requeue_dead_many", let_go_and_requeue)

    assert queue.requeue_dead_letters() == 1
    assert values(queue.peek()) == [stays.value]


def test_old_letters_are_counted_and_pruned_and_free_their_keys(
    queue: Queue, clock: ManualClock
) -> None:
    old = queue.put("old", dedupe_key="k")
    queue.dead_letter(old, "x")
    clock.advance(60)
    buried(queue, "young")

    assert queue.count_dead_letters_older_than(60) == 1
    assert queue.prune_dead_letters(older_than=60) == 1
    assert values(queue.dead_letters()) == ["young"]
    assert not queue.put("again", dedupe_key="k").duplicate


def test_a_letter_without_an_error_is_as_old_as_its_put(queue: Queue, clock: ManualClock) -> None:
    message = queue.put("a")
    clock.advance(60)
    queue.dead_letter(message)

    assert queue.prune_dead_letters(60) == 1


def test_the_error_of_a_letter_can_be_corrected(queue: Queue) -> None:
    message = buried(queue, "a", "first guess")

    assert queue.dead_letter(message.id, "what it was")

    [letter] = queue.dead_letters()
    assert letter.last_error is not None
    assert letter.last_error["message"] == "what it was"


def test_a_letter_can_be_let_go(queue: Queue) -> None:
    message = buried(queue, "a")

    assert queue.ack(message.id)
    assert queue.dead_letters() == []


def test_an_expired_message_can_become_a_letter(new_queue: NewQueue, clock: ManualClock) -> None:
    queue = new_queue(expiry_policy=MessageTTL(10, on_expiry="dead-letter"))
    queue.put("a")
    clock.advance(10)

    assert (queue.qsize(), queue.stats().dead) == (0, 1)
    queue.put("b")
    assert queue.get(block=False) == "b"

    [letter] = queue.dead_letters()
    assert letter.last_error is not None
    assert (letter.value, letter.last_error["type"]) == ("a", "MessageExpired")


def test_a_message_that_keeps_killing_its_worker_becomes_a_letter(
    new_queue: NewQueue, clock: ManualClock, store: WatchedStore
) -> None:
    queue = new_queue(crash_limit_policy=CrashLimit(2))
    queue.put("poison")
    dies = LeaseRequest(("jobs",), timeout=30, worker="w1", liveness="pid-1")
    for _ in range(2):
        now = clock.wall()
        assert len(store.lease(dies, now=now)) == 1
        clock.advance(30)

    assert queue.stats().dead == 1
    assert queue.peek() == []
    assert store.lease(dies, now=clock.wall()) == []
    [letter] = queue.dead_letters()
    assert letter.last_error is not None
    assert (letter.crashes, letter.last_error["type"]) == (2, "CrashLimitExceeded")
    assert queue.requeue_dead(letter)
    assert queue.get_message(block=False).crashes == 0


def test_the_expiry_of_a_bare_get_is_no_crash(new_queue: NewQueue, clock: ManualClock) -> None:
    queue = new_queue(crash_limit_policy=CrashLimit(1))
    queue.put("slow")

    for _ in range(5):
        queue.get_message(block=False, leased_by="w1")
        clock.advance(30)

    assert queue.get_message(block=False).attempts == 6


def test_a_letter_does_not_hold_back_its_ordering_key(new_queue: NewQueue) -> None:
    queue = new_queue(ordering_policy=OrderingKeys())
    queue.put_many(["first", "second"], ordering_key="k")
    first = queue.get_message(block=False)
    queue.dead_letter(first, "x")

    second = queue.get_message(block=False)
    queue.requeue_dead(first)

    assert second.value == "second"
    assert queue.empty(), "the requeued one waits behind the second"
    queue.ack(second)
    assert queue.get(block=False) == "first"
