"""Two faces of one call: it blocks its thread, or it is awaited on an event loop.

What a call does is written once, as a coroutine that speaks to its store through a face. Over
``Blocking`` it never suspends, so ``finish`` runs it from beginning to end like a function. The
awaitable face is in ``aio.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from localqueue.calls.attachment import Attachment
from localqueue.clock import StoreTime
from localqueue.policies.notification import WaitableNotification
from localqueue.stores.protocol import QueueStore, Waiter

R = TypeVar("R")


class Face(Protocol):
    """How a call gets what it cannot do by itself."""

    async def open(self) -> StoreTime:
        """Open the store, if it is not; its time. StoreClosed when the queue was closed."""

    async def ask(self, call: Callable[[QueueStore], R]) -> R:
        """The answer of the store; ``call`` makes one call of a verb and nothing else."""

    async def run(self, function: Callable[[], R]) -> R:
        """What a function returns that may block, and that may use the blocking queue."""

    async def wait(self, waiter: Waiter, seconds: float) -> bool: ...

    def can_hear(self, notification: object) -> bool:
        """Whether ``hear`` can wait for this policy."""

    async def hear(self, notification: Any, timeout: float | None) -> bool:
        """Wait until the notification comes: True. False when time is over."""

    def caller(self) -> object:
        """Who is calling: what it got is what it settles first."""


class Blocking:
    """The caller's thread does everything, and waits."""

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment

    async def open(self) -> StoreTime:
        return self._attachment.open()

    async def ask(self, call: Callable[[QueueStore], R]) -> R:
        return call(self._attachment.store)

    async def run(self, function: Callable[[], R]) -> R:
        return function()

    async def wait(self, waiter: Waiter, seconds: float) -> bool:
        return waiter.wait(seconds)

    def can_hear(self, notification: object) -> bool:
        return isinstance(notification, WaitableNotification)

    async def hear(self, notification: WaitableNotification, timeout: float | None) -> bool:
        return notification.wait(timeout)

    def caller(self) -> object:
        return threading.get_ident()


def finish(call: Coroutine[Any, Any, R]) -> R:
    """Run a call over ``Blocking`` to its end: its answer, or what it raises."""
    try:
        call.send(None)
    except StopIteration as end:
        answer: R = end.value
        return answer
    call.close()
    raise AssertionError("a blocking call has nothing to be suspended for")
