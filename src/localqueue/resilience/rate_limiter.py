"""A limit on how often something is started."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from localqueue.checks import check_count, check_seconds, check_timeout


class Limiter(Protocol):
    """What a worker asks before it starts a message; a limit shared through a store has it too."""

    def delay(self) -> float:
        """Seconds until one more may start; 0.0 when it may now. Takes nothing."""

    def available(self) -> int:
        """How many may start now."""

    def try_acquire(self, n: int = 1) -> bool:
        """Take ``n`` starts now, all or none."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most ``n`` starts in any ``per`` seconds."""

    n: int
    per: float = 1.0

    def __post_init__(self) -> None:
        check_count("n", self.n, least=1)
        object.__setattr__(self, "per", check_seconds("per", self.per, zero=False))

    def limiter(self, clock: Callable[[], float] = time.monotonic) -> RateLimiter:
        """A limiter that counts from now on, for the threads and tasks of one worker."""
        return RateLimiter(self, clock)


class RateLimiter:
    """Counts the starts of one worker. Any number of threads and tasks may share it.

    The moments of the last ``n`` starts are kept, so the promise holds for every stretch of time,
    not only for calendar seconds: nobody gets two full loads back to back.
    """

    def __init__(self, limit: RateLimit, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._clock = clock
        self._starts: deque[float] = deque(maxlen=limit.n)
        self._lock = threading.Lock()

    def delay(self) -> float:
        """Seconds until one more may start; 0.0 when it may now. Takes nothing."""
        with self._lock:
            return self._delay(self._clock())

    def available(self) -> int:
        """How many may start now."""
        with self._lock:
            return self.limit.n - self._recent(self._clock())

    def try_acquire(self, n: int = 1) -> bool:
        """Take ``n`` starts now, all or none."""
        with self._lock:
            now = self._clock()
            if n > self.limit.n - self._recent(now):
                return False
            self._starts.extend([now] * n)
            return True

    def take(self) -> float | None:
        """Take one start; the moment it counts from. None when none may start now."""
        with self._lock:
            now = self._clock()
            if self._recent(now) == self.limit.n:
                return None
            self._starts.append(now)
            return now

    def count_from_now(self, taken: float) -> None:
        """What was taken at that moment starts only now."""
        with self._lock:
            # It may be forgotten already, when it took long to get here.
            with contextlib.suppress(ValueError):
                self._starts.remove(taken)
            self._starts.append(self._clock())

    def acquire(
        self, timeout: float | None = None, *, wait: Callable[[float], object] = time.sleep
    ) -> bool:
        """Wait for a start and take it; False when time is over.

        ``wait`` is how to wait so many seconds. When it answers true, as the ``wait`` of an event
        that says "stop" does, nothing is taken and the answer is False.
        """
        deadline = self._deadline(timeout)
        while not self.try_acquire():
            seconds = self._pause(deadline)
            if seconds is None or wait(seconds):
                return False
        return True

    async def acquire_async(self, timeout: float | None = None) -> bool:
        """The same for a task."""
        deadline = self._deadline(timeout)
        while not self.try_acquire():
            seconds = self._pause(deadline)
            if seconds is None:
                return False
            await asyncio.sleep(seconds)
        return True

    def _deadline(self, timeout: float | None) -> float | None:
        seconds = check_timeout(timeout)
        return None if seconds is None else self._clock() + seconds

    def _pause(self, deadline: float | None) -> float | None:
        """How long to wait before the next try; None when it would be too late."""
        with self._lock:
            now = self._clock()
            seconds = self._delay(now)
            return None if deadline is not None and now + seconds > deadline else seconds

    def _delay(self, now: float) -> float:
        if self._recent(now) < self.limit.n:
            return 0.0
        return self._starts[0] + self.limit.per - now

    def _recent(self, now: float) -> int:
        """How many of the kept starts still count; forgets those that do not."""
        while self._starts and self._starts[0] + self.limit.per <= now:
            self._starts.popleft()
        return len(self._starts)
