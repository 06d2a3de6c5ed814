"""How many messages a worker holds: as many as its handlers finish in a moment."""

from __future__ import annotations

MOST = 200
"""More in one transaction gains nothing."""
HORIZON = 0.1
"""What is leased ahead should be begun within so many seconds."""
PART_OF_LEASE = 0.1
"""And within this part of its lease."""
_WEIGHT = 0.3


class Prefetch:
    """Measures how long handlers take, and says how many messages to lease ahead.

    It begins with none: until a handler has ended nobody knows how long one takes.
    """

    def __init__(self, concurrency: int, lease_timeout: float, most: int | None) -> None:
        self._concurrency = concurrency
        self._most = MOST if most is None else most
        self._horizon = min(HORIZON, lease_timeout * PART_OF_LEASE)
        self._seconds: float | None = None

    def measure(self, ended: int, worked: float) -> None:
        """In so many seconds of work, all runners together, so many handlers ended."""
        seconds = worked / max(1, ended)
        if self._seconds is not None:
            seconds = self._seconds + _WEIGHT * (seconds - self._seconds)
        elif not ended:
            return
        self._seconds = seconds

    def ahead(self) -> int:
        """How many to hold beside those that run."""
        if self._seconds is None:
            return 0
        if self._seconds * self._most <= self._horizon * self._concurrency:
            return self._most
        return int(self._horizon * self._concurrency / self._seconds)
