"""When the next message may start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from localqueue.resilience.circuit_breaker import Circuit, CircuitState
from localqueue.resilience.rate_limiter import RateLimit, RateLimiter
from localqueue.worker.options import WorkerOptions

Sleep = Callable[[float], Awaitable[object]]


class Start:
    """The start that one message has taken.

    It counts from the moment when the handler is called: what lies between the two is longer for
    some than for others, and the next one would follow too soon.
    """

    def __init__(self) -> None:
        self.taken: list[tuple[RateLimiter, float]] = []

    def now(self) -> None:
        """The handler is about to be called; only its first try counts."""
        while self.taken:
            limiter, taken = self.taken.pop()
            limiter.count_from_now(taken)


class Pace:
    """The interval, the rate and the breaker of one decorated function, for all its callers.

    They are waited for before a message is leased, so that it can be run by others meanwhile, and
    taken when it starts: who waits for a message for hours has not started one.
    """

    def __init__(self, options: WorkerOptions) -> None:
        self._limiters: list[RateLimiter] = []
        if options.min_interval:
            self._limiters.append(RateLimit(1, options.min_interval).limiter())
        if options.rate_limit is not None:
            self._limiters.append(options.rate_limit.limiter())
        breaker = options.circuit_breaker
        self._circuit: Circuit | None = None if breaker is None else breaker.circuit()
        self.is_free = not self._limiters and self._circuit is None

    async def wait(self, sleep: Sleep) -> None:
        """Until one may start, as far as one can see now."""
        while (seconds := self._delay()) > 0:
            await sleep(seconds)

    async def start(self, sleep: Sleep) -> Start:
        """Take a start; another caller may have been faster, then the next one is waited for."""
        start = Start()
        if self._circuit is not None:
            while not self._circuit.allow():
                await sleep(self._circuit.delay())
        try:
            for limiter in self._limiters:
                while (taken := limiter.take()) is None:
                    await sleep(limiter.delay())
                start.taken.append((limiter, taken))
        except BaseException:
            self.ended(None)
            raise
        return start

    def ended(self, good: bool | None) -> None:
        """It succeeded, failed, or ended in a way that says nothing about the service (None)."""
        if self._circuit is None:
            return
        if good:
            self._circuit.succeeded()
        elif good is None:
            self._circuit.abandoned()
        else:
            self._circuit.failed()

    def failed_for_good(self) -> None:
        """Missing code is nobody's outage: what failed before it was not followed by another."""
        if self._circuit is not None and self._circuit.state is CircuitState.CLOSED:
            self._circuit.succeeded()
        else:
            self.ended(None)

    def _delay(self) -> float:
        delays = [limiter.delay() for limiter in self._limiters]
        if self._circuit is not None:
            delays.append(self._circuit.delay())
        return max(delays, default=0.0)
