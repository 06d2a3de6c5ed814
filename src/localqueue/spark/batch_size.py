"""How many messages one job gets: as many as it runs in a moment."""

from __future__ import annotations

import threading

MOMENT = 0.25
"""Seconds of handlers in one job: much more than a job costs, and nobody waits long behind them."""
_GROWTH = 8
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
            wanted = self._most if each * self._most <= MOMENT else int(MOMENT / each)
            self.now = max(1, min(wanted, self.now * _GROWTH))
