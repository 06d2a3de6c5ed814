"""How the foreman sleeps, and how runners, heartbeat and signals wake it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Protocol

from localqueue.stores.protocol import Waiter

SLICE = 0.2
"""A thread that waits for the store hears the bell this often."""


class Bell(Protocol):
    """Rung before somebody sleeps, it is heard all the same; rung often, it wakes once."""

    def ring(self) -> None:
        """From any thread, and from signal handlers: it takes no lock."""

    def reset(self) -> None:
        """Before looking at what it may have been rung for."""

    async def sleep(self, seconds: float, waiter: Waiter | None) -> bool:
        """Until it is rung or the time is over; with a waiter, until that is told: True."""

    async def let_go(self) -> None:
        """The waiter will be closed."""


class ThreadBell:
    """The foreman sleeps in its thread."""

    def __init__(self) -> None:
        self._rung = False

    def ring(self) -> None:
        self._rung = True

    def reset(self) -> None:
        self._rung = False

    async def sleep(self, seconds: float, waiter: Waiter | None) -> bool:
        deadline = time.monotonic() + seconds
        while not self._rung and (left := deadline - time.monotonic()) > 0:
            # In slices, since an event that wakes a thread has a lock that a signal may find taken.
            if waiter is None:
                time.sleep(min(left, SLICE))  # noqa: ASYNC251 - it is this thread that sleeps
            elif waiter.wait(min(left, SLICE)):
                return True
        return False

    async def let_go(self) -> None:
        """Nothing goes on while the foreman is awake."""


class LoopBell:
    """The foreman sleeps on an event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._heard: asyncio.Future[None] | None = None
        self._rung = False
        self._told: asyncio.Task[bool] | None = None
        self._listens = False
        """Whether who sleeps wants to be told."""

    def ring(self) -> None:
        if self._rung:
            return
        self._rung = True
        if self._loop is not None:
            # A loop that was closed has nobody left to wake.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake)

    def reset(self) -> None:
        self._rung = False

    async def sleep(self, seconds: float, waiter: Waiter | None) -> bool:
        self._loop = asyncio.get_running_loop()
        heard = self._heard = self._loop.create_future()
        # After there is something to wake: whoever rings now does so, and whoever did is seen.
        if self._rung:
            return False
        if waiter is not None and self._told is None:
            self._told = asyncio.ensure_future(waiter.wait_async(seconds))
            self._told.add_done_callback(self._hear)
        self._listens = waiter is not None
        if not self._is_told():
            # By hand: asyncio.wait takes a turn of the loop more, and a message waits for its end.
            timer = self._loop.call_later(seconds, self._wake)
            try:
                await heard
            finally:
                timer.cancel()
        if not self._is_told():
            return False
        told, self._told = self._told, None
        return told is not None and told.result()

    def _is_told(self) -> bool:
        """Whether the waiter was, and who sleeps wants to know."""
        return self._listens and self._told is not None and self._told.done()

    async def let_go(self) -> None:
        told, self._told = self._told, None
        if told is not None:
            told.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await told

    def _hear(self, told: asyncio.Future[bool]) -> None:
        # One that was taken, or cancelled, has nothing to say any more.
        if told is self._told and self._listens:
            self._wake()

    def _wake(self) -> None:
        if self._heard is not None and not self._heard.done():
            self._heard.set_result(None)
