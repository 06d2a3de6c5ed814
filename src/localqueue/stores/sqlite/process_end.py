"""Closing what nobody closed when the process ends: a plain end is no crash."""

from __future__ import annotations

import atexit
import weakref
from typing import Protocol


class Open(Protocol):
    """Something that leaves files behind unless it is closed."""

    def close_at_exit(self) -> None: ...


_watched: weakref.WeakSet[Open] = weakref.WeakSet()


def watch(one: Open) -> None:
    """Close it at the end of the process, if it lives that long."""
    _watched.add(one)


@atexit.register
def _close_all() -> None:
    for one in list(_watched):
        one.close_at_exit()
