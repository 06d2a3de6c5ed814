"""Short ways to say what a test of ``queue.aio`` does."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from localqueue.aio import AwaitableQueue
from localqueue.queue import PersistentQueue
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.minimal import MinimalStore
from localqueue.stores.protocol import Waiter
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.testing import ManualClock
from tests.contract.test_minimal_store import DictStore

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


class Sleepers:
    """Counts those who found nothing and are about to wait."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    def add(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait_for(self, count: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._count >= count, PATIENCE)


class WatchedMemoryStore(MemoryQueueStore):
    def __init__(self) -> None:
        super().__init__()
        self.sleepers = Sleepers()

    def watch(self, queues: Iterable[str], what: Literal["ready", "room"]) -> Waiter:
        self.sleepers.add()
        return super().watch(queues, what)


class WatchedSQLiteStore(SQLiteQueueStore):
    def __init__(self, path: Path) -> None:
        super().__init__(path, durability="relaxed")
        self.sleepers = Sleepers()

    def watch(self, queues: Iterable[str], what: Literal["ready", "room"]) -> Waiter:
        self.sleepers.add()
        return super().watch(queues, what)


class WatchedMinimalStore(MinimalStore):
    def __init__(self) -> None:
        super().__init__(DictStore())
        self.sleepers = Sleepers()

    def watch(self, queues: Iterable[str], what: Literal["ready", "room"]) -> Waiter:
        self.sleepers.add()
        return super().watch(queues, what)


WatchedStore = WatchedMemoryStore | WatchedSQLiteStore | WatchedMinimalStore


async def asleep(store: WatchedStore, *tasks: asyncio.Task[Any]) -> None:
    """Until each of these tasks has found nothing, and waits or is about to."""
    assert await asyncio.to_thread(store.sleepers.wait_for, len(tasks)), "not all of them wait"
    assert not any(task.done() for task in tasks)


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
