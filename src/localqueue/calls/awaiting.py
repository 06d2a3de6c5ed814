"""The awaitable face: the event loop only encodes, decodes and sleeps; threads do what blocks."""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar, cast

from localqueue.calls.attachment import Attachment
from localqueue.calls.shared_wait import SharedWait
from localqueue.clock import StoreTime
from localqueue.policies.notification import AwaitableNotification, WaitableNotification
from localqueue.stores.helper_threads import HelperThreads
from localqueue.stores.pending import Mailboxes, Pending
from localqueue.stores.protocol import QueueStore, Waiter
from localqueue.stores.threaded import awaitable_twin

R = TypeVar("R")

MOST_THREADS = 32
"""For what is no call of the store: hooks, opening, large batches. Nobody who waits has one."""


class Awaiting:
    """Calls are tasks of event loops, of one or of several."""

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment
        self._twin: QueueStore | None = None
        self._threads = HelperThreads("localqueue-aio", MOST_THREADS)
        self._mailboxes = Mailboxes()
        self._shared_wait: SharedWait | None = None

    async def open(self) -> StoreTime:
        return await self.run(self._attachment.open)

    async def ask(self, call: Callable[[QueueStore], R]) -> R:
        # Looked at every time: a queue that was closed meanwhile takes nothing any more.
        if self._attachment.when is None:
            await self.open()
        if self._twin is None:
            self._twin = awaitable_twin(self._attachment.store)
        return await cast("Awaitable[R]", call(self._twin))

    async def run(self, function: Callable[[], R]) -> R:
        pending: Pending[R] = Pending(self._mailboxes.current())
        self._threads.submit(partial(contextvars.copy_context().run, function), pending)
        return await pending

    async def wait(self, waiter: Waiter, seconds: float) -> bool:
        return await waiter.wait_async(seconds)

    def can_hear(self, notification: object) -> bool:
        return isinstance(notification, (AwaitableNotification, WaitableNotification))

    async def hear(
        self, notification: AwaitableNotification | WaitableNotification, timeout: float | None
    ) -> bool:
        if isinstance(notification, AwaitableNotification):
            return await notification.wait_async(timeout)
        if self._shared_wait is None:
            self._shared_wait = SharedWait(notification, self._threads)
        return await self._shared_wait.wait(timeout)

    def caller(self) -> object:
        task = asyncio.current_task()
        assert task is not None
        return weakref.ref(task)
