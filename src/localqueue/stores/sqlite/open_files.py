"""Which files this process has open, and by whose SQLite.

POSIX locks belong to a process, not to a library: when a second SQLite in the process closes its
descriptor of a file, the locks of the first are gone, and with them, in the end, data. So a file is
shared by the connections of one library, or another one has it alone.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Iterator

from localqueue.errors import StoreBusy

Inode = tuple[int, int]
"""Device and number: what a file is, whatever it is called."""

PATIENCE = 2.0
"""Seconds: another library has a file for some milliseconds at a time."""

_changed = threading.Condition()
_shared: Counter[Inode] = Counter()
_alone: set[Inode] = set()
_waiting: Counter[Inode] = Counter()


def take(inode: Inode, patience: float = PATIENCE) -> None:
    """Open it with Python's sqlite3, together with others that do.

    While another library has it alone, this waits; StoreBusy when that takes longer than
    ``patience``.
    """
    with _changed:
        if inode in _alone:
            _waiting[inode] += 1
            try:
                _changed.wait_for(lambda: inode not in _alone, min(patience, PATIENCE))
            finally:
                _waiting[inode] -= 1
        if inode in _alone:
            raise StoreBusy("another SQLite library has the file open in this process; close it")
        _shared[inode] += 1


def give_back(inode: Inode) -> None:
    with _changed:
        _shared[inode] -= 1
        if not _shared[inode]:
            del _shared[inode]


@contextlib.contextmanager
def shared(inode: Inode, patience: float = PATIENCE) -> Iterator[None]:
    """``take`` and ``give_back`` around a look at the file."""
    take(inode, patience)
    try:
        yield
    finally:
        give_back(inode)


@contextlib.contextmanager
def alone(inode: Inode) -> Iterator[None]:
    """For another library: StoreBusy while a store of this process has, or wants, the file open."""
    with _changed:
        if inode in _shared or inode in _alone or _waiting[inode]:
            raise StoreBusy("the file is open in this process; close its store first")
        _alone.add(inode)
    try:
        yield
    finally:
        with _changed:
            _alone.discard(inode)
            _changed.notify_all()


def _after_fork_in_child() -> None:
    # Another thread of the parent may have held it, and those who waited did not come along.
    global _changed
    _changed = threading.Condition()
    _waiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
