"""How fast a worker may start handlers: an interval, a rate, and a pause when everything fails."""

from __future__ import annotations

import time

from localqueue.resilience.circuit_breaker import Breaker, CircuitState
from localqueue.resilience.rate_limiter import Limiter


class Pace:
    """Asked before messages are leased, so that none waits in a worker that may not start it."""

    def __init__(
        self, min_interval: float, limiter: Limiter | None, breaker: Breaker | None
    ) -> None:
        self._interval = min_interval
        self._limiter = limiter
        self._breaker = breaker
        self._next = 0.0
        self.is_free = not min_interval and limiter is None and breaker is None
        """Nothing has to be asked."""
        self.counts = breaker is not None
        """Whether it wants to know how handlers ended."""

    def room(self, most: int) -> int:
        """How many of so many handlers may start now."""
        if self._interval:
            most = min(most, int(time.monotonic() >= self._next))
        if most and self._breaker is not None:
            if self._breaker.delay() > 0:
                return 0
            if self._breaker.state is not CircuitState.CLOSED:
                most = 1
        if most and self._limiter is not None:
            most = min(most, self._limiter.available())
        return most

    def start(self, n: int) -> int:
        """So many are about to start; how many of them may, where others share the limit."""
        allowed = 0
        while allowed < n and self._may_start():
            allowed += 1
        if allowed and self._interval:
            self._next = time.monotonic() + self._interval
        return allowed

    def _may_start(self) -> bool:
        if self._breaker is not None and not self._breaker.allow():
            return False
        if self._limiter is None or self._limiter.try_acquire():
            return True
        if self._breaker is not None:
            self._breaker.abandoned()
        return False

    def delay(self) -> float:
        """Seconds until ``room`` may say more than none."""
        delay = max(0.0, self._next - time.monotonic()) if self._interval else 0.0
        if self._breaker is not None:
            delay = max(delay, self._breaker.delay())
        if self._limiter is not None:
            delay = max(delay, self._limiter.delay())
        return delay

    def ended(self, good: bool | None) -> None:
        """A handler succeeded, failed, or ended in a way that says nothing (None)."""
        if self._breaker is None:
            return
        if good:
            self._breaker.succeeded()
        elif good is None:
            self._breaker.abandoned()
        else:
            self._breaker.failed()
