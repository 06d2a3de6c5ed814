"""The foreman's sleep on a loop: what ends it, and what does not."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from localqueue.workers.bell import LoopBell

PATIENCE = 10.0
"""Seconds. Far less than a sleep that nothing ends would take."""
LONG = 600.0


class Told:
    """A waiter that is told when the test says so."""

    def __init__(self) -> None:
        self.now = asyncio.Event()

    def wait(self, timeout: float) -> bool:
        raise AssertionError("on a loop nobody blocks")

    async def wait_async(self, timeout: float) -> bool:
        await self.now.wait()
        return True

    def close(self) -> None: ...


def finish(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, PATIENCE))


def test_who_is_told_wakes_at_once() -> None:
    async def test() -> None:
        bell, waiter = LoopBell(), Told()

        asyncio.get_running_loop().call_soon(waiter.now.set)
        assert await bell.sleep(LONG, waiter)
        # Once: what was told is taken.
        waiter.now.clear()
        assert not await bell.sleep(0.01, waiter)
        await bell.let_go()

    finish(test())


def test_a_ring_ends_the_sleep_and_the_waiter_goes_on() -> None:
    async def test() -> None:
        bell, waiter = LoopBell(), Told()

        asyncio.get_running_loop().call_soon(bell.ring)
        assert not await bell.sleep(LONG, waiter)
        assert not await bell.sleep(LONG, waiter), "rung before it slept"
        bell.reset()
        waiter.now.set()
        assert await bell.sleep(LONG, waiter)

    finish(test())


def test_who_waits_for_no_message_is_not_woken_by_one_and_the_next_who_does_is_told() -> None:
    async def test() -> None:
        bell, waiter = LoopBell(), Told()
        loop = asyncio.get_running_loop()
        assert not await bell.sleep(0.01, waiter)

        loop.call_soon(waiter.now.set)
        began = loop.time()
        assert not await bell.sleep(0.1, None)
        assert loop.time() - began >= 0.1

        assert await bell.sleep(LONG, waiter)

    finish(test())
