"""Calls pass while the gate is open; closing it waits until the last one is out."""

from __future__ import annotations

import threading
from collections import Counter


class Gate:
    """Counts the calls that are running, so that an adapter can be shut down between them."""

    __slots__ = ("_changed", "_closed", "_running")

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: Counter[int] = Counter()
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def enter(self) -> bool:
        """Whether the call may run; then ``leave`` must follow on the same thread."""
        with self._changed:
            if self._closed:
                return False
            self._running[threading.get_ident()] += 1
            return True

    def leave(self) -> None:
        thread = threading.get_ident()
        with self._changed:
            self._running[thread] -= 1
            if not self._running[thread]:
                del self._running[thread]
            self._changed.notify_all()

    def close(self, timeout: float | None = None) -> bool:
        """Let nobody in any more and wait for those inside; False when the time is over first.

        Calls of the closing thread itself are not waited for: a handler may close its own adapter.
        """
        with self._changed:
            self._closed = True
            return self._changed.wait_for(self._is_empty, timeout)

    def _is_empty(self) -> bool:
        return not (self._running.keys() - {threading.get_ident()})
