"""Short ways to say what a test of ``queue.aio`` does."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from localqueue.aio import AwaitableQueue
from localqueue.queue import PersistentQueue
from localqueue.testing import ManualClock

PATIENCE = 20.0
"""How long a test waits for what must happen; only a failing one waits that long."""

P = ParamSpec("P")
R = TypeVar("R")
Queue = PersistentQueue[Any]
Aio = AwaitableQueue[Any]
NewQueue = Callable[..., Queue]


def in_a_loop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """The test runs in an event loop of its own, and fails when it does not come to an end."""

    @functools.wraps(test)
    def run(*args: P.args, **options: P.kwargs) -> None:
        async def within_time() -> None:
            async with asyncio.timeout(PATIENCE):
                await test(*args, **options)

        asyncio.run(within_time())

    return run


class GatedClock(ManualClock):
    """Stops the thread that reads it inside a transaction: the call was taken, and has no answer.

    The loop's own thread passes: the gate is for those who work for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shut = False
        self._reached = threading.Event()
        self._opened = threading.Event()

    def shut(self) -> None:
        self._reached.clear()
        self._opened.clear()
        self._shut = True

    def open(self) -> None:
        self._shut = False
        self._opened.set()

    async def reached(self) -> None:
        """Somebody stands at the gate."""
        assert await asyncio.to_thread(self._reached.wait, PATIENCE), "nobody came to the gate"

    def steady(self) -> float:
        if self._shut and not _is_loop():
            self._reached.set()
            assert self._opened.wait(PATIENCE), "nobody opened the gate"
        return super().steady()


async def settled() -> None:
    """Let everything run that is ready to."""
    for _ in range(10):
        await asyncio.sleep(0)


async def eventually(what: Callable[[], Awaitable[bool]]) -> None:
    """Until it holds; the test's own patience ends it."""
    while not await what():  # noqa: ASYNC110  # what other threads and processes do rings no bell
        await asyncio.sleep(0.005)


async def has(queue: Aio, ready: int) -> bool:
    """Whether so many messages are ready."""
    return await queue.qsize() == ready


async def outcome(task: asyncio.Task[R]) -> R | BaseException:
    return (await asyncio.gather(task, return_exceptions=True))[0]


def _is_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
