"""Ending the dispatchers that nobody closed when the process ends: a plain end is no crash."""

from __future__ import annotations

import atexit
import time
import weakref
from typing import Protocol

# For the order: what is registered later is called first, and workers settle while stores are open.
from localqueue.stores.sqlite import process_end as _stores  # noqa: F401

DRAIN = 5.0
"""How long handlers may go on when the program has ended."""


class Running(Protocol):
    """Something with handlers that may be running."""

    def end_at_exit(self) -> None:
        """Start nothing more. Returns at once."""

    def wait_at_exit(self, deadline: float) -> None:
        """For what runs, until this time of ``time.monotonic()``, and then give it back."""


_watched: weakref.WeakSet[Running] = weakref.WeakSet()


def watch(one: Running) -> None:
    """End it at the end of the process, if it lives that long."""
    _watched.add(one)


@atexit.register
def _end_all() -> None:
    watched = list(_watched)
    for one in watched:
        one.end_at_exit()
    deadline = time.monotonic() + DRAIN
    for one in watched:
        one.wait_at_exit(deadline)
