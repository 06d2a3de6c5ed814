"""Waiting for what only a thread can wait for: one does, for all the tasks that want to."""

from __future__ import annotations

import asyncio
import threading
import time

from localqueue.policies.notification import WaitableNotification
from localqueue.stores.helper_threads import HelperThreads
from localqueue.stores.pending import set_from_any_thread
from localqueue.stores.threaded import NOBODY

SLICE = 0.25
"""How long the thread goes on when nobody wants to wait any more."""


class SharedWait:
    """The tasks that wait for one notification, and the thread that does it for them."""

    def __init__(self, notification: WaitableNotification, threads: HelperThreads) -> None:
        self._notification = notification
        self._threads = threads
        self._lock = threading.Lock()
        self._tasks: set[asyncio.Future[bool]] = set()
        self._listening = False

    async def wait(self, timeout: float | None) -> bool:
        """Until notified: True. False when the time is over or the notification was closed."""
        if self._notification.wait(0.0) or timeout == 0.0:
            return self._notification.wait(0.0)
        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._tasks.add(told)
            if not self._listening:
                self._listening = True
                self._threads.submit(self._listen, NOBODY)
        try:
            return await asyncio.wait_for(told, timeout)
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._tasks.discard(told)

    def _listen(self) -> None:
        while self._is_wanted():
            began = time.monotonic()
            heard = self._notification.wait(SLICE)
            # Back before its time without having heard anything: it was closed.
            if heard or time.monotonic() - began < SLICE / 2:
                self._tell(heard)

    def _is_wanted(self) -> bool:
        with self._lock:
            self._listening = bool(self._tasks)
            return self._listening

    def _tell(self, heard: bool) -> None:
        with self._lock:
            tasks = list(self._tasks)
            self._tasks.clear()
        for told in tasks:
            set_from_any_thread(told, heard)
