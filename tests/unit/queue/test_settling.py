"""Acknowledge, release, dead-letter, extend, cancel; and who may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from localqueue.errors import InvalidArgument
from localqueue.message import QueueMessage, State
from localqueue.stores.protocol import Cancelled, LeaseAnswer
from localqueue.testing import ManualClock
from tests.unit.queue.phrases import NewQueue, Queue, drain

Settle = Callable[[Queue, QueueMessage[Any]], object]
SETTLEMENTS: dict[str, Settle] = {
    "ack": lambda queue, message: queue.ack(message),
    "release": lambda queue, message: queue.release(message),
    "dead_letter": lambda queue, message: queue.dead_letter(message),
}


def leased(queue: Queue, value: Any = "a") -> QueueMessage[Any]:
    queue.put(value)
    return queue.get_message()


def test_an_acknowledged_message_is_gone(queue: Queue) -> None:
    message = leased(queue)

    assert queue.ack(message)

    assert queue.inspect(message.id) is None
    assert not queue.ack(message)


@pytest.mark.parametrize("settle", SETTLEMENTS.values(), ids=SETTLEMENTS)
def test_a_worker_whose_lease_was_taken_over_changes_nothing(
    queue: Queue, clock: ManualClock, settle: Settle
) -> None:
    late = leased(queue)
    clock.advance(30)
    owner = queue.get_message(leased_by="owner")

    assert settle(queue, late) is False

    assert queue.inspect(late.id) == owner
    assert queue.extend(late) is LeaseAnswer.LOST
    assert queue.ack(owner)


@pytest.mark.parametrize("settle", SETTLEMENTS.values(), ids=SETTLEMENTS)
def test_a_lease_that_ended_unnoticed_is_still_its_holders_to_settle(
    queue: Queue, clock: ManualClock, settle: Settle
) -> None:
    message = leased(queue)
    clock.advance(3600)

    assert settle(queue, message) is True


@pytest.mark.parametrize("settle", SETTLEMENTS.values(), ids=SETTLEMENTS)
def test_what_put_returned_acts_only_while_nobody_holds_a_lease(
    queue: Queue, settle: Settle
) -> None:
    put = queue.put("a")
    message = queue.get_message()

    assert settle(queue, put) is False
    assert queue.release(message)
    assert settle(queue, put) is True


@pytest.mark.parametrize("settle", SETTLEMENTS.values(), ids=SETTLEMENTS)
def test_an_operators_id_acts_on_the_lease_and_makes_its_receipt_stale(
    queue: Queue, settle: Settle
) -> None:
    message = leased(queue)

    assert settle(queue, message.id) is True  # type: ignore[arg-type]

    assert not queue.ack(message)
    assert queue.history(message.id)[-1].by == "operator"


def test_a_message_of_another_queue_is_refused(new_queue: NewQueue) -> None:
    message = leased(new_queue("mine"))

    with pytest.raises(InvalidArgument, match="belongs to queue 'mine', not to 'yours'"):
        new_queue("yours").ack(message)

    assert new_queue("mine").ack(message)


# --- release ------------------------------------------------------------------------------------
def test_a_released_message_comes_again_behind_what_is_ready(
    queue: Queue, clock: ManualClock
) -> None:
    message = leased(queue, "first")
    queue.put("second")
    clock.advance(1)

    assert queue.release(message)

    assert drain(queue) == ["second", "first"]


def test_a_release_may_wait_and_may_keep_an_error(queue: Queue, clock: ManualClock) -> None:
    message = leased(queue)

    assert queue.release(message, 5, ValueError("boom"))

    assert queue.empty()
    clock.advance(5)
    again = queue.get_message()
    assert (again.attempts, again.failures) == (2, 1)
    assert again.last_error == {"type": "ValueError", "module": "builtins", "message": "boom"}
    assert again.failed_at == clock.wall() - 5


def test_a_release_without_an_error_leaves_the_last_one_standing(queue: Queue) -> None:
    queue.release(leased(queue), error="first")

    queue.release(queue.get_message())

    again = queue.get_message()
    assert again.last_error == {"type": None, "module": None, "message": "first"}
    assert again.failures == 1


def test_a_failed_command_keeps_what_it_printed(queue: Queue) -> None:
    class CommandFailed(RuntimeError):
        command = "convert a.png"
        exit_code = 2
        stdout = "half"
        stderr = None

    queue.release(leased(queue), error=CommandFailed("exit 2"))

    error = queue.get_message().last_error
    assert error is not None
    assert (error["type"], error["exit_code"], error["stdout"]) == ("CommandFailed", 2, "half")
    assert "stderr" not in error


def test_a_dead_letter_cannot_be_released(queue: Queue) -> None:
    message = queue.put("a")
    queue.dead_letter(message)

    assert not queue.release(message)
    assert queue.stats().dead == 1


# --- extend -------------------------------------------------------------------------------------
def test_an_extended_lease_is_held_from_now(queue: Queue, clock: ManualClock) -> None:
    message = leased(queue)
    clock.advance(29)

    assert queue.extend(message) is LeaseAnswer.HELD
    clock.advance(29)
    assert queue.empty()
    assert queue.extend(message, 5) is LeaseAnswer.HELD
    clock.advance(5)

    assert queue.qsize() == 1


def test_a_note_of_the_holder_is_kept_in_the_journal(queue: Queue) -> None:
    message = leased(queue)

    queue.extend(message, note="page 3 of 9")

    assert queue.history(message.id)[-1].detail == {"note": "page 3 of 9"}


def test_a_lease_that_is_over_cannot_be_extended(queue: Queue) -> None:
    message = leased(queue)
    queue.release(message)

    assert queue.extend(message) is LeaseAnswer.LOST
    assert queue.qsize() == 1


# --- cancel -------------------------------------------------------------------------------------
@pytest.mark.parametrize("delay", [0, 60])
def test_a_waiting_message_is_cancelled_at_once(queue: Queue, delay: float) -> None:
    message = queue.put("a", delay=delay)

    assert queue.cancel(message) is Cancelled.REMOVED

    assert queue.stats().total == 0
    assert queue.history(message.id)[-1].kind == "cancelled"


def test_the_holder_of_a_lease_is_asked_to_stop_and_decides(queue: Queue) -> None:
    message = leased(queue)

    assert queue.cancel(message.id) is Cancelled.ASKED

    assert queue.extend(message) is LeaseAnswer.CANCEL_ASKED
    assert queue.inspect(message.id) is not None
    assert queue.ack(message)


def test_the_next_delivery_is_not_asked_to_stop(queue: Queue) -> None:
    message = leased(queue)
    queue.cancel(message)
    queue.release(message)

    assert queue.extend(queue.get_message()) is LeaseAnswer.HELD


def test_nothing_is_cancelled_where_there_is_nothing_to_deliver(queue: Queue) -> None:
    message = queue.put("a")
    queue.dead_letter(message)

    answers = [queue.cancel(message), queue.cancel("0" * 32)]

    assert answers == [Cancelled.UNKNOWN, Cancelled.UNKNOWN]
    assert not any(answers)
    assert queue.inspect(message.id) is not None


def test_a_settled_message_has_no_lease_any_more(queue: Queue) -> None:
    message = leased(queue)
    queue.dead_letter(message, error="no")

    found = queue.inspect(message.id)

    assert found is not None
    assert (found.state, found.leased_by, found.leased_until) == (State.DEAD, None, None)
