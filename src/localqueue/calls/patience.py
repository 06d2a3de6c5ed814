"""How long a call waits before it looks again, and when it gives up."""

from __future__ import annotations

import math
import time

LOOK_AGAIN = 1.0
"""A waiter looks by itself this often: what time alone changes wakes nobody."""


def deadline_in(seconds: float | None) -> float | None:
    """The moment of ``time.monotonic()`` until which a call may wait; None is for ever."""
    return None if seconds is None else time.monotonic() + seconds


def remaining(deadline: float | None) -> float:
    return math.inf if deadline is None else deadline - time.monotonic()


def until_next_look(left: float, due_in: float = math.inf) -> float:
    """How long to sleep with this much time left, when something is due in so many seconds."""
    return min(left, LOOK_AGAIN, max(0.0, due_in))
