"""A task that waits in its loop. Loaded when the first one does: many programs have no loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from localqueue.stores.sqlite.wakeups.read_end import ReadEnd

R = TypeVar("R")


class SleepingTask:
    """Made in the task; woken in its loop, or from any thread."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._told: asyncio.Future[bool] = self.loop.create_future()

    async def sleep(self, timeout: float) -> bool:
        """Until it is woken; False when the time is over."""
        # By hand: asyncio.wait takes two more turns of the loop, and whoever is woken waits for it.
        timer = self.loop.call_later(timeout, self._end, False)
        try:
            return await self._told
        finally:
            timer.cancel()

    def sleep_again(self) -> None:
        self._told = self.loop.create_future()

    def is_asleep(self) -> bool:
        return not self._told.done()

    def wake(self) -> None:
        self._end(True)

    def _end(self, told: bool) -> None:
        if self.is_asleep():
            self._told.set_result(told)

    def wake_from_any_thread(self) -> None:
        # A loop that was closed has nobody left to wake.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.wake)


class TaskAtFifos(SleepingTask):
    """Waits at the ends of its waiter."""

    def __init__(self, took: set[int]) -> None:
        super().__init__()
        self.heard_news = False
        self._took = took

    def take(self, end: ReadEnd) -> None:
        # Noted at once: if the task is cancelled now, its waiter still owes it to the next.
        self._took.add(end.key[1])
        self.wake()

    def hear_news(self) -> None:
        self.heard_news = True
        self.wake()


async def in_a_thread(call: Callable[[], R]) -> R:
    """For what reads the database: the loop does not."""
    return await asyncio.to_thread(call)


def start_in_a_thread(call: Callable[[Iterable[int]], None], numbers: Iterable[int]) -> bool:
    """The same without waiting for it; False when no loop runs here, or it takes no work now."""
    try:
        asyncio.get_running_loop().run_in_executor(None, call, numbers)
    except RuntimeError:
        return False
    return True
