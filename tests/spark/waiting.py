"""Waiting for what happens in another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(is_so: Callable[[], object], otherwise: str, patience: float = 60.0) -> None:
    """Look again and again; an error when it is not so in time."""
    end = time.monotonic() + patience
    while not is_so():
        assert time.monotonic() < end, otherwise
        time.sleep(0.01)
