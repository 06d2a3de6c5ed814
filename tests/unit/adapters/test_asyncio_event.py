"""Coroutines of this process are woken after a put, from whichever thread."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from localqueue.adapters.notification import AsyncNotification
from localqueue.errors import InvalidArgument, WrongType
from localqueue.message import QueueMessage
from localqueue.policies import AwaitableNotification, WaitableNotification

MESSAGE: QueueMessage[Any] = QueueMessage("1", {"job": 1}, "jobs")
PATIENCE = 10.0


async def waiting(notification: AsyncNotification) -> asyncio.Task[bool]:
    """A task that is inside wait_async."""
    before = len(notification._waiting.futures)
    task = asyncio.create_task(notification.wait_async())
    await asyncio.sleep(0)
    assert len(notification._waiting.futures) == before + 1
    return task


async def answer(task: asyncio.Task[bool]) -> bool:
    return await asyncio.wait_for(task, PATIENCE)


def in_thread(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_put_of_the_same_loop_wakes_a_waiting_coroutine() -> None:
    async def main() -> None:
        notification = AsyncNotification()
        task = await waiting(notification)

        notification.notify(MESSAGE)

        assert notification.event.is_set()
        assert await answer(task)

    asyncio.run(main())


def test_a_put_of_another_thread_wakes_every_waiting_coroutine() -> None:
    async def main() -> None:
        notification = AsyncNotification()
        tasks = [await waiting(notification) for _ in range(3)]

        await asyncio.to_thread(notification.notify, MESSAGE)

        assert [await answer(task) for task in tasks] == [True] * 3

    asyncio.run(main())


def test_a_put_of_another_thread_wakes_who_awaits_the_event_itself() -> None:
    async def main() -> None:
        notification = AsyncNotification()
        task = asyncio.create_task(notification.event.wait())
        await asyncio.sleep(0)

        in_thread(lambda: notification.notify(MESSAGE))

        assert not notification.event.is_set()  # it is set by its own loop, which runs this test
        assert await asyncio.wait_for(task, PATIENCE)

    asyncio.run(main())


def test_a_wait_that_begins_between_the_put_and_the_event_is_woken_too() -> None:
    async def main() -> None:
        notification = AsyncNotification()
        in_thread(lambda: notification.notify(MESSAGE))
        assert not notification.event.is_set()

        assert await asyncio.wait_for(notification.wait_async(), PATIENCE)

    asyncio.run(main())


def test_a_notification_stays_until_it_is_cleared() -> None:
    async def main() -> None:
        notification = AsyncNotification()
        notification.notify(MESSAGE)

        assert await notification.wait_async(timeout=0)
        assert await notification.wait_async(timeout=0)

        notification.clear()

        assert not await notification.wait_async(timeout=0)

    asyncio.run(main())


def test_a_wait_that_was_given_up_leaves_nothing_behind() -> None:
    async def main() -> None:
        notification = AsyncNotification()
        task = await waiting(notification)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await notification.wait_async(timeout=0)

        assert not notification._waiting.futures

    asyncio.run(main())


def test_one_made_without_a_loop_is_set_directly() -> None:
    notification = AsyncNotification()

    notification.notify(MESSAGE)

    assert notification.event.is_set()
    assert asyncio.run(notification.wait_async())


def test_one_notification_serves_one_loop_after_the_other() -> None:
    notification = AsyncNotification()

    async def main() -> bool:
        notification.clear()
        task = await waiting(notification)
        await asyncio.to_thread(notification.notify, MESSAGE)
        return await answer(task)

    assert asyncio.run(main())
    assert asyncio.run(main())


def test_coroutines_of_two_loops_at_once_are_woken() -> None:
    notification = AsyncNotification()
    other_waits = threading.Event()
    answers: list[bool] = []

    async def other() -> None:
        task = await waiting(notification)
        other_waits.set()
        answers.append(await answer(task))

    async def main() -> None:
        thread = threading.Thread(target=lambda: asyncio.run(other(), debug=True))
        thread.start()
        await asyncio.to_thread(other_waits.wait, PATIENCE)
        task = asyncio.create_task(notification.wait_async())
        await asyncio.sleep(0)

        notification.notify(MESSAGE)

        answers.append(await answer(task))
        await asyncio.to_thread(thread.join, PATIENCE)

    # In debug mode a loop raises when another thread touches it.
    asyncio.run(main(), debug=True)

    assert answers == [True, True]


def test_the_event_belongs_to_the_next_loop_when_its_own_is_closed() -> None:
    notification = AsyncNotification()

    async def main() -> bool:
        assert not await notification.wait_async(timeout=0)
        task = asyncio.create_task(notification.event.wait())
        await asyncio.sleep(0)
        await asyncio.to_thread(notification.notify, MESSAGE)
        return await asyncio.wait_for(task, PATIENCE)

    asyncio.run(notification.wait_async(timeout=0))

    assert asyncio.run(main(), debug=True)


def test_the_loop_can_be_given() -> None:
    loop = asyncio.new_event_loop()
    notification = AsyncNotification(loop=loop)

    async def main() -> bool:
        task = await waiting(notification)
        await asyncio.to_thread(notification.notify, MESSAGE)
        return await answer(task)

    try:
        assert loop.run_until_complete(main())
    finally:
        loop.close()
    notification.clear()

    notification.notify(MESSAGE)

    assert notification.event.is_set()


def test_it_can_be_waited_for_by_coroutines_only() -> None:
    notification = AsyncNotification()

    assert isinstance(notification, AwaitableNotification)
    assert not isinstance(notification, WaitableNotification)


@pytest.mark.parametrize(
    ("timeout", "error"), [(-1, InvalidArgument), (math.nan, InvalidArgument), ("1", WrongType)]
)
def test_a_bad_timeout_is_refused(timeout: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="timeout"):
        asyncio.run(AsyncNotification().wait_async(timeout))


@pytest.mark.parametrize("from_thread", [False, True])
def test_closing_wakes_whoever_waits_and_tells_them_that_there_was_no_put(
    from_thread: bool,
) -> None:
    async def main() -> None:
        with AsyncNotification() as notification:
            tasks = [await waiting(notification) for _ in range(3)]
            if from_thread:
                await asyncio.to_thread(notification.close)

        assert [await answer(task) for task in tasks] == [False] * 3
        assert notification.closed

    asyncio.run(main())


def test_nobody_waits_for_a_closed_notification_again() -> None:
    async def main() -> None:
        notification = AsyncNotification()
        notification.close()
        notification.close()
        notification.notify(MESSAGE)
        notification.clear()

        assert not await asyncio.wait_for(notification.wait_async(), PATIENCE)
        assert await asyncio.wait_for(notification.event.wait(), PATIENCE)

    asyncio.run(main())


def test_a_put_after_closing_does_not_set_the_users_event() -> None:
    event = asyncio.Event()
    notification = AsyncNotification(event)
    notification.close()
    event.clear()

    notification.notify(MESSAGE)

    assert not event.is_set()
