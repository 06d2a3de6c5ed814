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

_lock = threading.Lock()
_shared: Counter[Inode] = Counter()
_alone: set[Inode] = set()


def take(inode: Inode) -> None:
    """Open it with Python's sqlite3, together with others that do."""
    with _lock:
        if inode in _alone:
            raise StoreBusy("another SQLite library has the file open in this process; close it")
        _shared[inode] += 1


def give_back(inode: Inode) -> None:
    with _lock:
        _shared[inode] -= 1
        if not _shared[inode]:
            del _shared[inode]


@contextlib.contextmanager
def alone(inode: Inode) -> Iterator[None]:
    """For another library: StoreBusy while a store of this process has the file open."""
    with _lock:
        if inode in _shared or inode in _alone:
            raise StoreBusy("the file is open in this process; close its store first")
        _alone.add(inode)
    try:
        yield
    finally:
        with _lock:
            _alone.discard(inode)


def _after_fork_in_child() -> None:
    # Another thread of the parent may have held it.
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
