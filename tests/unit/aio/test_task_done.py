"""task_done and join for tasks: each settles its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from localqueue.errors import InvalidArgument
from tests.unit.aio.phrases import Aio, in_a_loop, settled


@in_a_loop
async def test_a_task_settles_what_it_got_itself(queue: Aio) -> None:
    await queue.put_many(["first", "second"])
    has_got, may_end = asyncio.Event(), asyncio.Event()

    async def first() -> Any:
        value = await queue.get()
        has_got.set()
        await may_end.wait()
        return value

    slow = asyncio.create_task(first())
    await has_got.wait()
    second = (await queue.get_messages(1))[0]
    await queue.release(second)

    async def quick() -> None:
        assert await queue.get() == "second"
        await queue.task_done()

    await asyncio.create_task(quick())
    stats = await queue.stats()
    assert (stats.inflight, stats.total) == (1, 1), "the first is still at work"
    may_end.set()
    assert await slow == "first"


@in_a_loop
async def test_any_task_may_settle_for_one_that_ended(queue: Aio) -> None:
    await queue.put("a")
    await asyncio.create_task(queue.get())

    await queue.task_done()

    assert (await queue.stats()).total == 0
    with pytest.raises(InvalidArgument, match="too many times"):
        await queue.task_done()


@in_a_loop
async def test_join_waits_for_what_was_got_by_tasks_and_threads(queue: Aio) -> None:
    await queue.join()
    await queue.put_many(["a", "b"])
    await queue.get()
    await asyncio.to_thread(queue.queue.get)
    joined = [asyncio.create_task(queue.join()) for _ in range(2)]
    blocking = asyncio.create_task(asyncio.to_thread(queue.queue.join))

    await queue.task_done()
    await settled()
    assert not any(task.done() for task in joined)
    await asyncio.to_thread(queue.queue.task_done)

    await asyncio.gather(*joined, blocking)


@in_a_loop
async def test_a_join_may_be_cancelled(queue: Aio) -> None:
    await queue.put("a")
    await queue.get()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await queue.join()

    await queue.task_done()
    await queue.join()


@in_a_loop
async def test_purging_ends_a_join(queue: Aio) -> None:
    await queue.put("a")
    await queue.get()
    joined = asyncio.create_task(queue.join())
    await settled()

    await queue.purge()

    await joined
