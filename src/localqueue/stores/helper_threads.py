"""Threads that do for an event loop what would block it."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

LINGER = 10.0
"""How long a thread without work stays for the next."""


class Listener(Protocol):
    """Who is told of an answer."""

    def taken(self) -> bool:
        """From now on the call runs to its end; False when it was withdrawn."""

    def finished(self, call: Any) -> None:
        """The call has its ``answer``, or its ``error``."""

    def tell(self) -> None:
        """Whoever waits for it may be woken now."""


class HelperThreads:
    """Up to ``most`` daemon threads, started when there is work; they end by themselves.

    Calls are taken in the order in which they came. Nothing has to be closed: a thread that had
    nothing to do for a while ends, and a process does not wait for any.
    """

    def __init__(self, name: str, most: int = 1) -> None:
        self._name = name
        self._most = most
        self._start_anew()

    def submit(self, function: Callable[[], Any], listener: Listener) -> None:
        """Run it in one of the threads, and tell the listener."""
        if self._pid != os.getpid():
            # The threads did not cross the fork, and their work is the parent's.
            self._start_anew()
        with self._changed:
            self._waiting.append(_Job(function, listener))
            if self._idle >= len(self._waiting):
                self._changed.notify()
            elif self._threads < self._most:
                try:
                    threading.Thread(target=self._work, name=self._name, daemon=True).start()
                except BaseException:
                    if not self._threads:
                        self._waiting.pop()
                        raise
                else:
                    self._threads += 1

    def _start_anew(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._waiting: deque[_Job] = deque()
        self._threads = 0
        self._idle = 0

    def _work(self) -> None:
        while (job := self._next()) is not None:
            job.run()
            del job  # or its answer would live as long as the thread has nothing else to do

    def _next(self) -> _Job | None:
        with self._changed:
            if not self._waiting:
                self._idle += 1
                self._changed.wait_for(lambda: self._waiting, LINGER)
                self._idle -= 1
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None


class _Job:
    __slots__ = ("answer", "error", "function", "listener")

    def __init__(self, function: Callable[[], Any], listener: Listener) -> None:
        self.function = function
        self.listener = listener
        self.answer: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        if self.listener.taken():
            try:
                self.answer = self.function()
            except BaseException as error:
                self.error = error
            self.listener.finished(self)
        self.listener.tell()
