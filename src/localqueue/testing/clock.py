"""A clock that stands still until a test moves it."""

from __future__ import annotations

from localqueue.checks import check_seconds


class ManualClock:
    """A ``localqueue.clock.Clock`` whose time is set by the test.

    ``advance`` lets time pass, ``step_wall`` sets the wall clock as a person or NTP would, and
    ``reboot`` starts the host again: the steady clock begins anew under another boot id.
    """

    def __init__(self, start: float = 1_700_000_000.0, boot: str = "boot-1") -> None:
        self._wall = start
        self._steady = 1_000.0
        self._boot = boot
        self._boots = 1

    def wall(self) -> float:
        return self._wall

    def steady(self) -> float:
        return self._steady

    def boot_id(self) -> str:
        return self._boot

    def advance(self, seconds: float) -> None:
        """Let this much time pass on both clocks."""
        check_seconds("seconds", seconds)
        self._wall += seconds
        self._steady += seconds

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock forward, or back when negative; no time passes."""
        self._wall += seconds

    def reboot(self, boot: str | None = None, *, off_for: float = 0.0) -> None:
        """Switch off for some seconds of wall time and start again under a new boot id."""
        check_seconds("off_for", off_for)
        self._boots += 1
        self._boot = boot or f"boot-{self._boots}"
        self._wall += off_for
        self._steady = 10.0
