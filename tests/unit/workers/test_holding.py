"""What becomes of messages that were leased ahead, or that somebody else speaks for."""

from __future__ import annotations

from typing import Any

import pytest

from localqueue.calls.face import finish
from localqueue.message import QueueMessage
from localqueue.rule import FailurePolicy
from localqueue.stores.protocol import LeaseAnswer
from localqueue.workers.aftercare import Aftercare
from localqueue.workers.bell import ThreadBell
from localqueue.workers.context import Slot
from localqueue.workers.driver import Direct
from localqueue.workers.holding import Holding
from localqueue.workers.settling import Settling
from localqueue.workers.shift import Shift
from localqueue.workers.shutdown import Shutdown
from localqueue.workers.source import Sources
from tests.unit.workers.phrases import Queue, Stage


class Desk:
    """What a foreman has before it, with messages leased from a queue."""

    def __init__(self, queue: Queue) -> None:
        self.sources = Sources([queue], [FailurePolicy()], "w")
        self.slot = Slot(0)
        self.shift = Shift([self.slot], Shutdown(1.0), ThreadBell(), until_empty=False)
        self.ask = Direct(self.sources.store)
        aftercare = Aftercare()
        self.settling = Settling(self.shift, self.sources, self.ask, aftercare)
        self.holding = Holding(self.shift, self.sources, self.ask, self.settling, aftercare)
        (self.group,) = self.sources.groups("a liveness name")

    def lease(self, limit: int) -> list[QueueMessage[Any]]:
        request = self.group.asking(0, limit)
        leased = finish(self.settling.settle_and_lease(request))
        messages = finish(self.holding.take(self.group, leased))
        self.shift.pending.extend(messages)
        return messages

    def settle(self) -> None:
        finish(self.settling.settle())


@pytest.fixture
def queue(stage: Stage) -> Queue:
    queue = stage.queue()
    queue.put_many(["a", "b", "c"])
    return queue


@pytest.fixture
def desk(queue: Queue) -> Desk:
    return Desk(queue)


def test_a_message_that_is_cancelled_before_its_handler_begins_is_removed(
    queue: Queue, desk: Desk
) -> None:
    _, second, _ = desk.lease(3)
    queue.cancel(second.id)

    desk.holding.hear(second, LeaseAnswer.CANCEL_ASKED)
    desk.holding.act_on_answers()
    desk.settle()

    assert second not in desk.shift.pending
    assert queue.history(second.id)[-1].kind == "cancelled"
    assert desk.shift.summary().cancelled == 1


def test_a_message_that_is_lost_before_its_handler_begins_is_not_run(
    queue: Queue, desk: Desk
) -> None:
    _, second, _ = desk.lease(3)
    queue.release(second.id, delay=3600)

    desk.holding.hear(second, LeaseAnswer.LOST)
    desk.holding.act_on_answers()

    assert [message.value for message in desk.shift.pending] == ["a", "c"]
    assert desk.shift.summary().lost == 1


def test_an_answer_about_a_settled_message_is_no_news(queue: Queue, desk: Desk) -> None:
    (first,) = desk.lease(1)
    desk.shift.acks.append(desk.shift.pending.popleft())
    desk.settle()

    desk.holding.hear(first, LeaseAnswer.LOST)
    desk.holding.act_on_answers()

    assert (desk.shift.summary().done, desk.shift.summary().lost) == (1, 0)


def test_the_heartbeat_extends_what_runs_apart_from_what_waits(queue: Queue, desk: Desk) -> None:
    first, second, third = desk.lease(3)
    desk.slot.begin(desk.shift.pending.popleft())

    held = desk.holding.leases()

    assert list(held.running) == [first.receipt]
    assert list(held.prefetched) == [second.receipt, third.receipt]


def test_what_ended_while_it_was_taken_back_is_done(queue: Queue, desk: Desk) -> None:
    (first,) = desk.lease(1)
    desk.slot.begin(desk.shift.pending.popleft())

    assert desk.holding.take_back_running()
    desk.shift.acks.append(first)
    desk.settle()

    assert queue.inspect(first.id) is None
    assert (desk.shift.summary().done, desk.shift.summary().released) == (1, 0)


def test_what_ended_after_it_was_given_back_is_dropped(queue: Queue, desk: Desk) -> None:
    (first,) = desk.lease(1)
    desk.slot.begin(desk.shift.pending.popleft())

    assert desk.holding.take_back_running()
    desk.settle()
    desk.shift.acks.append(first)
    desk.settle()

    assert queue.inspect(first.id) is not None
    assert (desk.shift.summary().done, desk.shift.summary().released) == (0, 1)
    assert desk.slot.current_of(first).cancelled


def test_a_lease_that_was_over_unnoticed_has_its_result_dropped(queue: Queue, desk: Desk) -> None:
    first, second, _ = desk.lease(3)
    queue.release(first.id)

    desk.shift.acks.extend([first, second])
    desk.settle()

    assert (desk.shift.summary().done, desk.shift.summary().lost) == (1, 1)
    assert queue.inspect(first.id) is not None
