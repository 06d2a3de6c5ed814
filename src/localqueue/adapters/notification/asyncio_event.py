"""Wakes coroutines of this process when a message is stored."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from localqueue.checks import check_timeout
from localqueue.message import QueueMessage


class _Waiting:
    """The loop that the event belongs to and the futures of those who wait, under one lock."""

    __slots__ = ("closed", "futures", "lock", "loop")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.futures: set[asyncio.Future[None]] = set()
        self.closed = False


@dataclass(frozen=True, slots=True)
class AsyncNotification:
    """Sets an ``asyncio.Event`` for each put, from whichever thread; coroutines wait for it.

    Clear first, then look into the queue, then wait: a put in between is not missed. Coroutines of
    several event loops may wait with ``wait_async``; ``event`` itself belongs to ``loop``, or to
    the loop that was running when this was made or first waited for. After ``close`` notify does
    nothing, and every wait, running or later, returns False at once.
    """

    event: asyncio.Event = field(default_factory=asyncio.Event)
    loop: asyncio.AbstractEventLoop | None = None
    _waiting: _Waiting = field(default_factory=_Waiting, init=False, repr=False, compare=False)
    notifies: ClassVar[bool] = True
    notifies_on_put: ClassVar[bool] = True
    listener_count: ClassVar[int] = 1
    scope: ClassVar[str] = "in-process"

    def __post_init__(self) -> None:
        self._waiting.loop = self.loop or _running_loop()

    @property
    def closed(self) -> bool:
        return self._waiting.closed

    def notify(self, message: QueueMessage[Any]) -> None:
        if not self._waiting.closed:
            self._wake()

    async def wait_async(self, timeout: float | None = None) -> bool:
        """Wait until a put: True. False when the time is over or the notification was closed."""
        seconds = check_timeout(timeout)
        loop = asyncio.get_running_loop()
        with self._waiting.lock:
            if self._waiting.closed:
                return False
            if self._waiting.loop is None or self._waiting.loop.is_closed():
                self._waiting.loop = loop
            if self.event.is_set():
                return True
            future: asyncio.Future[None] = loop.create_future()
            self._waiting.futures.add(future)
        try:
            await asyncio.wait_for(future, seconds)
        except TimeoutError:
            return False
        finally:
            with self._waiting.lock:
                self._waiting.futures.discard(future)
        return not self._waiting.closed

    def clear(self) -> None:
        with self._waiting.lock:
            if not self._waiting.closed:
                self.event.clear()

    def close(self) -> None:
        """Wake whoever waits. Idempotent."""
        with self._waiting.lock:
            self._waiting.closed = True
        self._wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def as_dict(self) -> dict[str, Any]:
        return {
            "type": "asyncio-event",
            "scope": self.scope,
            "notifies": self.notifies,
            "notifies_on_put": self.notifies_on_put,
            "listener_count": self.listener_count,
        }

    def _wake(self) -> None:
        """Set the event on its own loop: asyncio's objects are not made for other threads."""
        loop = self._waiting.loop
        if loop is None or not loop.is_running() or loop is _running_loop():
            self._set()
            return
        try:
            loop.call_soon_threadsafe(self._set)
        except RuntimeError:  # the loop was closed in the meantime
            self._set()

    def _set(self) -> None:
        # Event and futures change under the lock under which wait_async looks at the one and adds
        # to the other, so that no wait begins unnoticed in between.
        with self._waiting.lock:
            self.event.set()
            waiting = list(self._waiting.futures)
        for future in waiting:
            _finish(future)


AsyncioNotification = AsyncNotification


def _finish(future: asyncio.Future[None]) -> None:
    loop = future.get_loop()
    if loop is not _running_loop():
        # A closed loop has nobody left to wake.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_finish, future)
    elif not future.done():
        future.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
