"""What has to happen around ``os.fork``: no SQLite connection may cross it."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forked(Protocol):
    """Something with connections or locks."""

    def before_fork(self) -> None: ...

    def after_fork(self, *, in_child: bool) -> None: ...


_lock = threading.Lock()
_watched: weakref.WeakSet[Forked] = weakref.WeakSet()
_told: list[Forked] = []


def watch(one: Forked) -> None:
    """Tell it about every fork of this process, as long as it lives."""
    with _lock:
        _watched.add(one)


def _before() -> None:
    _lock.acquire()
    _told[:] = _watched
    for one in _told:
        one.before_fork()


def _after_in_parent() -> None:
    _after(in_child=False)


def _after_in_child() -> None:
    _after(in_child=True)


def _after(*, in_child: bool) -> None:
    for one in _told:
        one.after_fork(in_child=in_child)
    _told.clear()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
