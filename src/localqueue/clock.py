"""Time that does not step.

Store time starts at the wall clock and then follows CLOCK_BOOTTIME, so that setting the wall clock
neither hides messages nor expires leases. The offset between the two is a row of the store, made
once per boot, so that all processes of a host agree.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Protocol

Now = float | Callable[[], float]
"""A moment of store time, or how to read it once the store's lock is held."""


def read_now(now: Now) -> float:
    return now() if callable(now) else now


class Clock(Protocol):
    """Where a queue gets its time from. A test sets it, see ``localqueue.testing.ManualClock``."""

    def wall(self) -> float:
        """What users see: ``time.time()``."""

    def steady(self) -> float:
        """Seconds since the boot, sleep included; never steps."""

    def boot_id(self) -> str:
        """Which boot ``steady`` counts from."""


if sys.platform == "linux":
    _steady: Callable[[], float] = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
else:
    _steady = time.monotonic


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The clocks of this host."""

    # Read in every call: without a function of ours around them.
    wall = staticmethod(time.time)
    steady = staticmethod(_steady)

    def boot_id(self) -> str:
        return _boot_id()


SYSTEM_CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class StoreTime:
    """A clock bound to a store: ``now`` is what verbs are given, ``to_wall`` what users see."""

    clock: Clock
    offset: float

    def now(self) -> float:
        return self.clock.steady() + self.offset

    def to_wall(self, moment: float) -> float:
        return moment + self.drift()

    def drift(self) -> float:
        """How far the wall clock was set away from store time; 0 unless it was really set."""
        difference = self.clock.wall() - (self.clock.steady() + self.offset)
        return difference if abs(difference) > 0.5 else 0.0


@cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        # macOS has a boot session id; elsewhere the start of the monotonic clock stands for it.
        return _sysctl_boot_id() or f"since-{round((time.time() - _steady()) / 60)}"


def _sysctl_boot_id() -> str | None:
    if sys.platform != "darwin":
        return None
    import subprocess

    answer = subprocess.run(
        ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"],
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() or None
