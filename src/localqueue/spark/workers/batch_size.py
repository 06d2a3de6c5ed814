"""How many messages one job gets: as many as it runs in a second, and fewer of the last ones."""

from __future__ import annotations

import threading

LONG = 1.0
"""Seconds of handlers in one job: a job costs some 50 ms of all cores together."""
SHORT = 0.1
"""What is left is shared by all lanes, but not into jobs that are shorter than this."""
_GROWTH = 32
_WEIGHT = 0.5


class BatchSize:
    """Measures how long handlers take. From any thread.

    It begins with one: until a handler has ended nobody knows how long one takes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._seconds: float | None = None
        self._lock = threading.Lock()
        self.now = 1

    def measure(self, count: int, seconds: float) -> None:
        """So many handlers took so long, one after the other."""
        with self._lock:
            each = seconds / count
            if self._seconds is not None:
                each = self._seconds + _WEIGHT * (each - self._seconds)
            self._seconds = each
            self.now = max(1, min(self._fit_into(LONG), self.now * _GROWTH))

    def share(self, left: int, lanes: int) -> int:
        """How many a lane should take of so many that are left for all."""
        return max(min(self.now, -(-left // lanes)), min(self.now, self._fit_into(SHORT)), 1)

    def _fit_into(self, seconds: float) -> int:
        each = self._seconds
        if each is None:
            return 1
        return self._most if each * self._most <= seconds else int(seconds / each)
