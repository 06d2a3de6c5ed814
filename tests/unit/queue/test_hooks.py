"""put = persist, notify, dispatch, in that order; what a hook raises takes nothing back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from localqueue.adapters.dispatch import CallbackDispatcher
from localqueue.adapters.notification import CallbackNotification, InProcessNotification
from localqueue.errors import ConfigurationError
from localqueue.message import QueueMessage
from localqueue.policies import (
    DropNewestBackpressure,
    PublishSubscribeRouting,
    StaticFanoutSubscriptions,
)
from localqueue.stores.settings import FANOUT_MODES
from localqueue.testing import ManualClock
from tests.unit.queue.phrases import Background, NewQueue, Queue, values


class Told:
    """Remembers what the hooks of a queue were called with, and what the store had by then."""

    def __init__(self, new_queue: NewQueue, **options: Any) -> None:
        self.calls: list[tuple[str, QueueMessage[Any]]] = []
        self.stored_before: list[bool] = []
        self.queue = new_queue(
            notification_policy=CallbackNotification(self._hook("notify")),
            dispatch_policy=CallbackDispatcher([self._hook("dispatch")]),
            **options,
        )
        self._look = new_queue("look").store

    def _hook(self, name: str) -> Callable[[QueueMessage[Any]], None]:
        def called(message: QueueMessage[Any]) -> None:
            self.calls.append((name, message))
            self.stored_before.append(self._look.read(message.queue, message.id) is not None)

        return called

    def of(self, name: str) -> list[QueueMessage[Any]]:
        return [message for called, message in self.calls if called == name]


def fails(message: QueueMessage[Any]) -> None:
    raise RuntimeError(f"cannot take {message.value}")


def test_a_message_is_stored_before_anybody_is_told_and_dispatched_last(
    new_queue: NewQueue,
) -> None:
    told = Told(new_queue)

    message = told.queue.put("a")

    assert told.calls == [("notify", message), ("dispatch", message)]
    assert told.stored_before == [True, True]


def test_a_failing_notification_surfaces_keeps_the_message_and_prevents_dispatch(
    new_queue: NewQueue,
) -> None:
    dispatched: list[QueueMessage[Any]] = []
    queue = new_queue(
        notification_policy=CallbackNotification(fails),
        dispatch_policy=CallbackDispatcher([dispatched.append]),
    )

    with pytest.raises(RuntimeError, match="cannot take a"):
        queue.put("a")

    assert values(queue.peek(5)) == ["a"]
    assert dispatched == []


def test_a_failing_handler_surfaces_and_the_message_stays(new_queue: NewQueue) -> None:
    queue = new_queue(dispatch_policy=CallbackDispatcher([fails]))

    with pytest.raises(RuntimeError, match="cannot take a"):
        queue.put("a")

    assert values(queue.peek(5)) == ["a"]
    assert queue.peek()[0].last_error is None


def test_a_duplicate_neither_notifies_nor_dispatches(new_queue: NewQueue) -> None:
    told = Told(new_queue)
    told.queue.put("a", dedupe_key="k", request_id="r")
    told.calls.clear()

    assert told.queue.put("a", dedupe_key="k").duplicate
    assert told.queue.put("a", request_id="r").duplicate

    assert told.calls == []


def test_a_dropped_message_neither_notifies_nor_dispatches(new_queue: NewQueue) -> None:
    told = Told(new_queue, backpressure=DropNewestBackpressure(1))
    told.queue.put("a")
    told.calls.clear()

    assert told.queue.put("b").dropped

    assert told.calls == []


def test_a_batch_is_told_message_by_message_after_all_are_stored(new_queue: NewQueue) -> None:
    told = Told(new_queue)

    messages = told.queue.put_many(["a", "b"])

    assert told.of("notify") == told.of("dispatch") == messages
    assert told.stored_before == [True] * 4


@pytest.mark.parametrize("mode", FANOUT_MODES)
def test_hooks_run_once_for_each_subscribers_copy(new_queue: NewQueue, mode: str) -> None:
    told = Told(
        new_queue,
        routing_policy=PublishSubscribeRouting(mode),
        subscription_policy=StaticFanoutSubscriptions(["billing", "audit"]),
    )

    told.queue.put("a")

    expected = ["jobs.billing", "jobs.audit"]
    assert [message.queue for message in told.of("notify")] == expected
    assert [message.queue for message in told.of("dispatch")] == expected
    assert all(told.stored_before)


def test_a_handler_may_acknowledge_what_it_was_given(new_queue: NewQueue) -> None:
    queues: list[Queue] = []
    answers: list[bool] = []

    def work(message: QueueMessage[Any]) -> None:
        answers.append(queues[0].ack(message))

    queues.append(new_queue(dispatch_policy=CallbackDispatcher([work])))
    queues[0].put("a")

    assert answers == [True]
    assert queues[0].stats().total == 0


def test_a_handler_may_put_again(new_queue: NewQueue) -> None:
    follow_ups = new_queue("next")
    queue = new_queue(dispatch_policy=CallbackDispatcher([lambda m: follow_ups.put(m.value + 1)]))

    queue.put(1)

    assert follow_ups.get(block=False) == 2


# --- wait_for_notification ----------------------------------------------------------------------
def test_who_waits_for_a_notification_is_woken_by_a_put(new_queue: NewQueue) -> None:
    queue = new_queue(notification_policy=InProcessNotification())
    queue.empty()
    waiting = Background(queue.wait_for_notification)

    queue.put("a")

    assert waiting.result() is True


def test_nobody_waits_for_a_notification_while_something_is_ready(new_queue: NewQueue) -> None:
    new_queue().put("before")
    queue = new_queue(notification_policy=InProcessNotification())

    assert queue.wait_for_notification(timeout=0)


def test_a_notification_of_what_is_gone_already_does_not_count(new_queue: NewQueue) -> None:
    queue = new_queue(notification_policy=InProcessNotification(threading.Event()))
    queue.put("a")
    queue.ack(queue.get_message())

    assert not queue.wait_for_notification(timeout=0)


def test_waiting_needs_a_notification_that_can_be_waited_for(queue: Queue) -> None:
    with pytest.raises(ConfigurationError, match=r"notification_policy=InProcessNotification\(\)"):
        queue.wait_for_notification(timeout=0)


# --- dispatch_pending ---------------------------------------------------------------------------
def test_pending_messages_are_dispatched_under_a_lease_and_acknowledged(
    new_queue: NewQueue,
) -> None:
    new_queue().put_many(["a", "b", "c"])
    seen: list[tuple[Any, str]] = []
    queue = new_queue(
        dispatch_policy=CallbackDispatcher([lambda m: seen.append((m.value, m.state))])
    )

    assert queue.dispatch_pending(2) == 2
    assert seen == [("a", "inflight"), ("b", "inflight")]
    assert queue.dispatch_pending() == 1
    assert queue.dispatch_pending() == 0
    assert queue.stats().total == 0


def test_a_pending_message_whose_handler_fails_is_released_with_the_error(
    new_queue: NewQueue, clock: ManualClock
) -> None:
    new_queue().put_many(["a", "b"])
    queue = new_queue(dispatch_policy=CallbackDispatcher([fails]))

    with pytest.raises(RuntimeError, match="cannot take a"):
        queue.dispatch_pending()

    assert queue.qsize() == 2
    failed = next(message for message in queue.peek(2) if message.value == "a")
    assert (failed.failures, failed.failed_at) == (1, clock.wall())
    assert failed.last_error is not None
    assert failed.last_error["message"] == "cannot take a"


def test_an_interrupted_handler_is_charged_with_nothing(new_queue: NewQueue) -> None:
    def interrupted(_: QueueMessage[Any]) -> None:
        raise KeyboardInterrupt

    new_queue().put("a")
    queue = new_queue(dispatch_policy=CallbackDispatcher([interrupted]))

    with pytest.raises(KeyboardInterrupt):
        queue.dispatch_pending()

    [message] = queue.peek()
    assert (message.failures, message.last_error) == (0, None)


def test_dispatching_needs_handlers(queue: Queue) -> None:
    with pytest.raises(ConfigurationError, match="dispatch_policy=CallbackDispatcher"):
        queue.dispatch_pending()
