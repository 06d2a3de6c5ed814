"""A pause after failures in a row, so that a broken service is not hammered.

CLOSED ──failures in a row──▶ OPEN ──cooldown──▶ HALF_OPEN ──success──▶ CLOSED
                                ▲                    │
                                └──────failure───────┘
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from localqueue.checks import check_count, check_seconds

LOOK_AGAIN = 0.05
"""While a trial runs nobody knows for how long."""


class CircuitState(StrEnum):
    """Whether messages are started."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker(Protocol):
    """What a worker asks before a message and tells after it; a breaker in a store has it too."""

    @property
    def state(self) -> CircuitState: ...

    def delay(self) -> float:
        """Seconds until it is worth asking; 0.0 when one may start now. Takes nothing."""

    def allow(self) -> bool:
        """Whether one may start. After a cooldown only one may, the trial, until its end is told.

        Whoever was allowed tells how it ended: ``succeeded``, ``failed`` or ``abandoned``.
        """

    def succeeded(self) -> None: ...

    def failed(self) -> None: ...

    def abandoned(self) -> None:
        """It ended in a way that says nothing about the service: interrupted, or nothing to do."""


@dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """After ``failures`` in a row nothing is started for ``cooldown`` seconds, then one trial."""

    failures: int
    cooldown: float

    def __post_init__(self) -> None:
        check_count("failures", self.failures, least=1)
        object.__setattr__(self, "cooldown", check_seconds("cooldown", self.cooldown, zero=False))

    def circuit(self, clock: Callable[[], float] = time.monotonic) -> Circuit:
        """A closed circuit, for the threads and tasks of one worker."""
        return Circuit(self, clock)


class Circuit:
    """The state of one worker's breaker. Any number of threads and tasks may share it."""

    def __init__(
        self, breaker: CircuitBreaker, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.breaker = breaker
        self._clock = clock
        self._failures = 0
        self._opened_at: float | None = None
        self._trial = False
        self._lock = threading.Lock()

    @property
    def state(self) -> CircuitState:
        with self._lock:
            if self._opened_at is None:
                return CircuitState.CLOSED
            return CircuitState.OPEN if self._cooldown_left() > 0 else CircuitState.HALF_OPEN

    @property
    def failures(self) -> int:
        """How many failures in a row there were."""
        return self._failures

    def delay(self) -> float:
        """Seconds until it is worth asking; 0.0 when one may start now. Takes nothing."""
        with self._lock:
            return self._delay()

    def allow(self) -> bool:
        """Whether one may start. After a cooldown only one may, the trial, until its end is told.

        Whoever was allowed tells how it ended: ``succeeded``, ``failed`` or ``abandoned``.
        """
        with self._lock:
            if self._delay() > 0:
                return False
            self._trial = self._opened_at is not None
            return True

    def acquire(self, *, wait: Callable[[float], object] = time.sleep) -> bool:
        """Wait until one may start; ``wait`` is how. False as soon as ``wait`` answers true."""
        while not self.allow():
            if wait(self.delay()):
                return False
        return True

    async def acquire_async(self) -> None:
        """The same for a task."""
        while not self.allow():
            seconds = self.delay()
            await asyncio.sleep(seconds)

    def succeeded(self) -> None:
        """The service works: the circuit is closed and counts from zero."""
        with self._lock:
            self._failures = 0
            self._opened_at = None
            self._trial = False

    def failed(self) -> None:
        """One more in a row. The last one allowed, or a failed trial, starts the cooldown."""
        with self._lock:
            self._failures += 1
            if self._trial or (self._opened_at is None and self._failures >= self.breaker.failures):
                self._opened_at = self._clock()
                self._trial = False

    def abandoned(self) -> None:
        """It ended in a way that says nothing about the service; a trial may be made again."""
        with self._lock:
            self._trial = False

    def _delay(self) -> float:
        if self._opened_at is None:
            return 0.0
        left = self._cooldown_left()
        if left > 0:
            return left
        return min(LOOK_AGAIN, self.breaker.cooldown) if self._trial else 0.0

    def _cooldown_left(self) -> float:
        assert self._opened_at is not None
        return self._opened_at + self.breaker.cooldown - self._clock()
