"""How a commit gets to stable storage: the -wal is synced after the lock is released.

SQLite commits with ``synchronous=NORMAL``, which writes the -wal without waiting for the disk. Then
the file lock goes to the next process, and only then the -wal is synced, before anybody is
answered: the promise is that of FULL, and others commit meanwhile.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from localqueue.errors import StoreError

if sys.platform == "darwin":
    import fcntl

    def _sync(descriptor: int) -> None:
        # fsync there leaves the data in the drive's cache.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

elif hasattr(os, "fdatasync"):

    def _sync(descriptor: int) -> None:
        os.fdatasync(descriptor)


SYNCS_ITSELF = sys.platform == "darwin" or hasattr(os, "fdatasync")
"""Elsewhere SQLite syncs, inside the commit."""


_CLOSED = -1


class Wal:
    """The -wal of a connection."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def sync(self) -> None:
        """Return when all that was committed is on stable storage; OSError when it is not."""
        # A -wal that was deleted under the connection takes commits, and loses them.
        here, there = os.fstat(self._descriptor), self._path.stat()
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            raise FileNotFoundError(f"{self._path.name} was replaced while it was open")
        _sync(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, _CLOSED
        os.close(descriptor)


def outcome_unknown(where: str, error: OSError) -> StoreError:
    return StoreError(
        f"{where}: the disk did not confirm the write ({error}); its outcome is unknown, and"
        " nothing more is stored until the file is repaired by the next call that succeeds"
    )


def sync_folder(folder: Path) -> None:
    """Make the names in it survive a power cut."""
    if not SYNCS_ITSELF:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
