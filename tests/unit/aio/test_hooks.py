"""Notification and dispatch beside an event loop: in threads, and waited for."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from queue import Empty
from typing import Any

import pytest

from localqueue.adapters.dispatch import CallbackDispatcher
from localqueue.adapters.notification import (
    AsyncNotification,
    CallbackNotification,
    InProcessNotification,
)
from localqueue.errors import ConfigurationError
from localqueue.message import QueueMessage
from tests.unit.aio.phrases import Aio, NewQueue, eventually, has, in_a_loop, outcome, settled

REQUEST: contextvars.ContextVar[str] = contextvars.ContextVar("REQUEST")


class Gate:
    """A hook that comes to an end when the test says so."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, message: QueueMessage[Any]) -> None:
        self.began.set()
        assert self.may_end.wait(20)


@in_a_loop
async def test_hooks_run_in_order_in_another_thread_and_before_put_returns(
    new_queue: NewQueue,
) -> None:
    told: list[tuple[str, Any, bool]] = []
    loop = threading.get_ident()

    def hook(name: str) -> Any:
        return lambda m: told.append((name, m.value, threading.get_ident() != loop))

    queue = new_queue(
        notification_policy=CallbackNotification(hook("notify")),
        dispatch_policy=CallbackDispatcher([hook("dispatch")]),
    ).aio

    await queue.put("a")

    assert told == [("notify", "a", True), ("dispatch", "a", True)]


@in_a_loop
async def test_a_hook_sees_the_context_of_the_put(new_queue: NewQueue) -> None:
    seen: list[str] = []
    notification = CallbackNotification(lambda _: seen.append(REQUEST.get()))
    queue = new_queue(notification_policy=notification).aio
    REQUEST.set("number 17")

    await queue.put("a")

    assert seen == ["number 17"]


@pytest.mark.parametrize("error", [RuntimeError("no"), StopIteration()])
@in_a_loop
async def test_what_a_hook_raises_reaches_the_caller_and_the_message_stays(
    new_queue: NewQueue, error: Exception
) -> None:
    def fails(_: QueueMessage[Any]) -> None:
        raise error

    queue = new_queue(notification_policy=CallbackNotification(fails)).aio

    with pytest.raises(RuntimeError):
        await queue.put("a")

    assert await queue.get_nowait() == "a"


@in_a_loop
async def test_a_slow_hook_makes_only_its_own_put_wait(new_queue: NewQueue) -> None:
    gate = Gate()
    queue = new_queue(notification_policy=CallbackNotification(gate)).aio

    slow = asyncio.create_task(queue.put("a"))
    await asyncio.to_thread(gate.began.wait, 20)

    assert await queue.get() == "a"
    await queue.task_done()
    assert not slow.done()
    gate.may_end.set()
    await slow


@in_a_loop
async def test_a_put_that_is_cancelled_during_its_hooks_is_stored(new_queue: NewQueue) -> None:
    gate = Gate()
    queue = new_queue(notification_policy=CallbackNotification(gate)).aio
    put = asyncio.create_task(queue.put("a"))
    await asyncio.to_thread(gate.began.wait, 20)

    put.cancel()

    assert isinstance(await outcome(put), asyncio.CancelledError)
    gate.may_end.set()
    assert await queue.get() == "a"


# --- waiting for a notification -----------------------------------------------------------------
@pytest.mark.parametrize("policy", [InProcessNotification, AsyncNotification])
@in_a_loop
async def test_a_put_is_heard(new_queue: NewQueue, policy: Any) -> None:
    queue = new_queue(notification_policy=policy()).aio
    heard = [asyncio.create_task(queue.wait_for_notification()) for _ in range(3)]
    await asyncio.sleep(0.05)
    assert not any(task.done() for task in heard)

    await queue.put("a")

    assert await asyncio.gather(*heard) == [True] * 3


@pytest.mark.parametrize("policy", [InProcessNotification, AsyncNotification])
@in_a_loop
async def test_without_a_put_nothing_is_heard(new_queue: NewQueue, policy: Any) -> None:
    queue = new_queue(notification_policy=policy()).aio

    assert not await queue.wait_for_notification(timeout=0)
    assert not await queue.wait_for_notification(timeout=0.05)

    await queue.put("a")
    assert await queue.wait_for_notification(timeout=0), "something is ready"


@pytest.mark.parametrize("policy", [InProcessNotification, AsyncNotification])
@in_a_loop
async def test_a_notification_that_is_closed_ends_the_wait(
    new_queue: NewQueue, policy: Any
) -> None:
    notification = policy()
    queue = new_queue(notification_policy=notification).aio
    heard = asyncio.create_task(queue.wait_for_notification())
    await asyncio.sleep(0.05)

    notification.close()

    assert await heard is False


@in_a_loop
async def test_all_who_wait_for_a_threads_notification_share_one_thread(
    new_queue: NewQueue,
) -> None:
    queue = new_queue(notification_policy=InProcessNotification()).aio
    await queue.wait_for_notification(timeout=0)
    before = threading.active_count()

    heard = [asyncio.create_task(queue.wait_for_notification()) for _ in range(50)]
    await asyncio.sleep(0.05)
    threads = threading.active_count() - before
    for task in heard:
        task.cancel()
    await asyncio.gather(*heard, return_exceptions=True)

    assert threads <= 2


@in_a_loop
async def test_waiting_needs_a_notification_that_can_be_waited_for(queue: Aio) -> None:
    with pytest.raises(ConfigurationError, match="InProcessNotification"):
        await queue.wait_for_notification(timeout=0)


# --- dispatch_pending ---------------------------------------------------------------------------
@in_a_loop
async def test_pending_messages_are_dispatched_and_acknowledged(new_queue: NewQueue) -> None:
    await new_queue().aio.put_many(["a", "b", "c"])
    seen: list[Any] = []
    queue = new_queue(dispatch_policy=CallbackDispatcher([lambda m: seen.append(m.value)])).aio

    assert await queue.dispatch_pending(2) == 2
    assert await queue.dispatch_pending() == 1

    assert seen == ["a", "b", "c"]
    assert (await queue.stats()).total == 0


@in_a_loop
async def test_a_cancelled_dispatch_settles_the_message_at_work_and_takes_no_other(
    new_queue: NewQueue,
) -> None:
    await new_queue().aio.put_many(["a", "b"])
    gate = Gate()
    queue = new_queue(dispatch_policy=CallbackDispatcher([gate])).aio
    dispatch = asyncio.create_task(queue.dispatch_pending())
    await asyncio.to_thread(gate.began.wait, 20)

    dispatch.cancel()
    assert isinstance(await outcome(dispatch), asyncio.CancelledError)
    gate.may_end.set()

    await eventually(lambda: has(queue, 1))
    assert await queue.get_nowait() == "b"
    await settled()
    with pytest.raises(Empty):
        await queue.get_nowait()


@in_a_loop
async def test_dispatching_needs_handlers(queue: Aio) -> None:
    with pytest.raises(ConfigurationError, match="dispatch_policy=CallbackDispatcher"):
        await queue.dispatch_pending()
