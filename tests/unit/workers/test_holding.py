"""What becomes of messages that were leased ahead, or that somebody else speaks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from localqueue.calls.face import finish
from localqueue.errors import StoreBusy
from localqueue.idempotency.records import IdempotencyRecords
from localqueue.message import QueueMessage
from localqueue.outcome import Ack, DeadLetter, Release
from localqueue.policies import AtMostOnceDelivery, EffectivelyOnceDelivery
from localqueue.queue import PersistentQueue
from localqueue.resilience.circuit_breaker import Circuit, CircuitBreaker
from localqueue.rule import FailurePolicy
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.protocol import LeaseAnswer, Settle
from localqueue.workers import timeouts
from localqueue.workers.aftercare import Aftercare
from localqueue.workers.bell import ThreadBell
from localqueue.workers.context import Slot
from localqueue.workers.driver import Direct
from localqueue.workers.execution import Execution
from localqueue.workers.heartbeat import Held
from localqueue.workers.holding import Holding
from localqueue.workers.liveness import Liveness
from localqueue.workers.pace import Pace
from localqueue.workers.settling import Settling
from localqueue.workers.shift import Ended, Shift
from localqueue.workers.shutdown import Shutdown
from localqueue.workers.source import Sources
from localqueue.workers.summary import Summary
from tests.unit.workers.noting import SlowToUndo
from tests.unit.workers.phrases import Queue, Stage, eventually


class Moody(MemoryQueueStore):
    """Takes no settlement while it is in its mood."""

    is_busy = False

    def settle_and_lease(self, settles: Any, request: Any, *, now: Any) -> Any:
        if self.is_busy:
            raise StoreBusy("not now")
        return super().settle_and_lease(settles, request, now=now)


class Meanwhile(MemoryQueueStore):
    """Something happens between a settlement and its answer."""

    happens: Callable[[], object] | None = None

    def settle(self, settle: Settle, *, now: Any) -> Any:
        answer = super().settle(settle, now=now)
        if self.happens is not None:
            self.happens()
        return answer


class Desk:
    """What a foreman has before it, with messages leased from a queue."""

    def __init__(self, queue: Queue, breaker: Circuit | None = None) -> None:
        self.sources = Sources([queue], [FailurePolicy()], "w")
        self.slot = Slot(0)
        self.shift = Shift([self.slot], Shutdown(1.0), ThreadBell(), until_empty=False)
        self.ask = Direct(self.sources.store)
        aftercare = Aftercare()
        self.settling = Settling(self.shift, self.sources, self.ask, aftercare)
        self.pace = Pace(0.0, None, breaker)
        self.holding = Holding(
            self.shift, self.sources, self.ask, self.settling, aftercare, self.pace
        )
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


def test_a_lease_that_is_lost_while_its_settlement_waits_is_lost_once() -> None:
    store = Moody()
    with PersistentQueue[Any]("jobs", store=store) as queue:
        queue.put_many(["a", "b"])
        desk = Desk(queue)
        first, second = desk.lease(2)
        desk.shift.pending.clear()
        desk.shift.acks.append(first)
        desk.shift.ended.append(Ended(second, Settle(second.receipt, Release()), "failed"))
        store.is_busy = True
        desk.settle()

        for message in (first, second):
            desk.holding.hear(message, LeaseAnswer.LOST)
        desk.holding.act_on_answers()
        store.is_busy = False
        desk.settle()

        assert desk.shift.summary() == Summary(lost=2)
        assert queue.stats().inflight == 2


def test_a_delivery_that_ended_and_was_interrupted_then_is_settled_once(
    queue: Queue, desk: Desk
) -> None:
    (first,) = desk.lease(1)
    desk.shift.pending.clear()
    for settlement, counts_as in ((Ack(), "done"), (Release(), "released")):
        desk.shift.ended.append(Ended(first, Settle(first.receipt, settlement), counts_as))

    desk.settle()

    assert queue.inspect(first.id) is None
    assert desk.shift.summary() == Summary(done=1)


def end_by_giving_back(desk: Desk, message: QueueMessage[Any]) -> None:
    desk.holding.give_back_pending()


def end_by_cancelling(desk: Desk, message: QueueMessage[Any]) -> None:
    desk.holding.hear(message, LeaseAnswer.CANCEL_ASKED)
    desk.holding.act_on_answers()


def end_by_losing(desk: Desk, message: QueueMessage[Any]) -> None:
    desk.holding.hear(message, LeaseAnswer.LOST)
    desk.holding.act_on_answers()


def end_by_stopping(desk: Desk, message: QueueMessage[Any]) -> None:
    desk.slot.begin(desk.shift.pending.popleft())
    desk.holding.take_back_running()


def end_by_coming_too_late(desk: Desk, message: QueueMessage[Any]) -> None:
    execution = Execution(desk.shift, desk.sources, desk.pace)
    desk.shift.shutdown.ask()
    assert execution.turns_away(desk.shift.pending.popleft())


@pytest.mark.parametrize(
    "end",
    [
        end_by_giving_back,
        end_by_cancelling,
        end_by_losing,
        end_by_stopping,
        end_by_coming_too_late,
    ],
)
def test_a_trial_that_ends_without_a_word_can_be_made_again(
    queue: Queue, end: Callable[[Desk, QueueMessage[Any]], None]
) -> None:
    seconds = [0.0]
    breaker = CircuitBreaker(failures=1, cooldown=1.0).circuit(lambda: seconds[0])
    desk = Desk(queue, breaker)
    breaker.failed()
    seconds[0] = 2.0
    (message,) = desk.lease(1)
    assert breaker.allow()
    assert not breaker.allow()

    end(desk, message)

    assert breaker.allow()


def test_what_was_removed_is_left_to_the_runners_until_nobody_waits(stage: Stage) -> None:
    queue = stage.queue("once", delivery_policy=AtMostOnceDelivery())
    queue.put("a")
    desk = Desk(queue)
    (message,) = desk.lease(1)

    desk.holding.give_back_pending()
    pending = list(desk.shift.pending)
    desk.holding.take_back_running()
    desk.settle()

    assert pending == [message]
    assert not desk.shift.pending
    assert desk.shift.summary() == Summary(lost=1)


# --- what is settled without the foreman --------------------------------------------------------
def test_what_is_being_settled_elsewhere_is_not_extended_nor_lost_nor_given_back() -> None:
    store = Meanwhile()
    with PersistentQueue[Any]("jobs", store=store) as queue:
        queue.put("a")
        desk = Desk(queue)
        (message,) = desk.lease(1)
        desk.slot.begin(desk.shift.pending.popleft())
        seen: list[Any] = []

        def look() -> None:
            seen.append(desk.holding.leases())
            desk.holding.hear(message, LeaseAnswer.LOST)
            desk.holding.act_on_answers()
            seen.append(desk.holding.take_back_running())
            seen.append(desk.holding.is_settled_elsewhere())

        store.happens = look
        failed = Ended(message, Settle(message.receipt, DeadLetter({"type": "E"})), "dead")
        desk.holding.settle_at_once(failed)
        desk.holding.act_on_answers()
        desk.settle()

        assert seen == [Held([], []), False, True]
        assert desk.shift.summary() == Summary(dead=1)
        assert not desk.shift.held
        assert not desk.holding.is_settled_elsewhere()


def test_what_was_lost_before_it_was_settled_elsewhere_is_counted_once(
    queue: Queue, desk: Desk
) -> None:
    (message,) = desk.lease(1)
    desk.slot.begin(desk.shift.pending.popleft())
    desk.holding.hear(message, LeaseAnswer.LOST)
    desk.holding.act_on_answers()

    desk.holding.settle_at_once(Ended(message, Settle(message.receipt, Release()), "failed"))
    desk.holding.act_on_answers()

    assert desk.shift.summary() == Summary(lost=1)
    assert not desk.holding.is_settled_elsewhere()


def test_what_cannot_be_settled_elsewhere_is_left_to_the_foreman() -> None:
    store = Meanwhile()
    with PersistentQueue[Any]("jobs", store=store) as queue:
        queue.put("a")
        desk = Desk(queue)
        (message,) = desk.lease(1)
        desk.slot.begin(desk.shift.pending.popleft())

        def refuse(*_: Any, **__: Any) -> Any:
            raise StoreBusy("not now")

        store.settle = refuse  # type: ignore[method-assign]
        desk.holding.settle_at_once(Ended(message, Settle(message.receipt, Release()), "failed"))
        desk.settle()

        assert desk.shift.summary() == Summary(failed=1)
        assert not desk.holding.is_settled_elsewhere()


@pytest.mark.parametrize("has_ended", [False, True])
def test_what_was_given_up_is_extended_as_begun_while_its_commit_undoes_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, has_ended: bool
) -> None:
    monkeypatch.setattr(timeouts, "GRACE", 0.0)
    policy = SlowToUndo()
    delivery = EffectivelyOnceDelivery(IdempotencyRecords.of(stage.store), commit_policy=policy)
    queue = stage.queue(delivery_policy=delivery)
    queue.put("a", dedupe_key="k")
    desk = Desk(queue)
    (message,) = desk.lease(1)
    execution = Execution(desk.shift, desk.sources, desk.pace)
    looks = timeouts.Timeouts(desk.shift, execution, Liveness(None, slots=1), 1e-9)

    def replace(slot: Slot) -> None:
        desk.shift.leave(slot)

    looks.replace = replace

    desk.slot.begin(desk.shift.pending.popleft())
    desk.slot.inside = True
    looks.check()
    looks.check()
    if has_ended:
        desk.slot.inside = False
        assert not desk.slot.ends(message)
        desk.slot.rest()
        looks.check()

    assert desk.shift.slots != [desk.slot]
    assert list(desk.holding.leases().running) == [message.receipt]
    policy.gate.set()
    eventually(lambda: not looks.is_undoing())
    desk.settle()
    assert desk.shift.summary() == Summary(failed=1)
