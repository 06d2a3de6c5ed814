"""How a commit gets to stable storage: the -wal is synced after the lock is released.

SQLite commits with ``synchronous=NORMAL``, which writes the -wal without waiting for the disk. Then
the file lock goes to the next process, and only then the -wal is synced, before anybody is
answered: the promise is that of FULL, and others commit meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from functools import cache
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


def _device_and_inode(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _name_behind(link: str) -> str | None:
    """Where an open file is now; None where the system does not tell."""
    try:
        return os.readlink(link)  # noqa: PTH115  # half the time
    except OSError:
        return None


@cache
def _write_behind() -> Callable[[int, int, int, int], int] | None:
    """How Linux is asked to begin writing a file; None where it cannot be."""
    if sys.platform != "linux":
        return None
    try:
        # Loaded here: a relaxed store that takes few messages never comes to this.
        import ctypes

        call = ctypes.CDLL(None).sync_file_range
    except (ImportError, OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    found: Callable[[int, int, int, int], int] = call
    return found


def prepare_to_write() -> None:
    """Load what ``Placed.start_writing`` needs, before somebody holds a lock and needs it."""
    _write_behind()


def _start_writing(descriptor: int) -> bool:
    """Whether there is a way to ask for it."""
    call = _write_behind()
    if call is None:
        return False
    # What fails here, the sync meets again.
    call(descriptor, 0, 0, _SYNC_FILE_RANGE_WRITE)
    return True


SYNCS_ITSELF = sys.platform == "darwin" or hasattr(os, "fdatasync")
"""Elsewhere SQLite syncs, inside the commit."""


_CLOSED = -1
A_MOMENT = 25e-6
"""Seconds in which a quick disk has written what it was given. Who falls asleep for that is woken
as much later again: with that a put takes up to a tenth longer."""
QUICK = 1e-3
"""How long a sync takes at most on a disk that is worth a moment of attention."""
_SYNC_FILE_RANGE_WRITE = 2
_READY_AT_ONCE = 1024 * 1024
_A_FRAME = 24 + 4096
"""A page and what SQLite writes before it, which is never all zeros."""


class Placed:
    """An open file whose syncs only count while it is still the one at its path.

    Between two of them nobody asks for its ``stat``: whoever has seen the time of a file makes
    Linux write a new one with the next change, and the sync then waits for that as well.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = str(path)
        self.descriptor = descriptor
        self._file = _device_and_inode(os.fstat(descriptor))
        self._link = f"/proc/self/fd/{descriptor}"
        self._name = _name_behind(self._link)
        self._begun = 0.0
        """When the disk was set to work the last time."""
        self._took = 0.0
        """How long the last sync took."""

    def sync(self) -> None:
        """Return when all that was written is on stable storage; OSError when it is not."""
        self.check_place()
        if self._took < QUICK:
            until = self._begun + A_MOMENT
            while time.perf_counter() < until:
                pass
        began = time.perf_counter()
        _sync(self.descriptor)
        self._took = time.perf_counter() - began

    def check_place(self) -> None:
        """OSError when it is no longer the file at its path."""
        if not self._is_in_place():
            raise FileNotFoundError(f"{self.path} was replaced while it was open")

    def start_writing(self) -> None:
        """Let the system begin to write what was committed, without waiting for the end of it.

        Who syncs the file finds the disk at work already. Who makes a checkpoint waits until all
        of the -wal is on the disk: begun only then, that is most of what a checkpoint takes.
        """
        if _start_writing(self.descriptor):
            self._begun = time.perf_counter()

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, _CLOSED
        os.close(descriptor)

    def _is_in_place(self) -> bool:
        """Whether it is still the file at its path.

        One that was deleted under its user takes what is written, and loses it.
        """
        if self._name is not None and _name_behind(self._link) == self._name:
            return True
        return _device_and_inode(os.stat(self.path)) == self._file  # noqa: PTH116  # half the time


class Wal(Placed):
    """The -wal of a connection."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0)))
        if _device_and_inode(path.stat()) != self._file:
            raise FileNotFoundError(f"{path} was replaced as it was opened")
        self._ready = self.size()

    def size(self) -> int:
        return os.lseek(self.descriptor, 0, os.SEEK_END)

    def make_ready(self, most: int) -> None:
        """Fill the next part with zeros when commits have come to the end of the file.

        A sync that has to make a file longer takes twice as long as one that writes over what is
        there. SQLite takes what it did not write for the end of the log. Nobody else may write
        meanwhile, so this belongs into a transaction. What fails here, the commit meets again.
        """
        end = self.size()
        if self._ready != end and 0 < end < most and not self._ends_in_zeros(end):
            with contextlib.suppress(OSError):
                end += os.pwrite(self.descriptor, bytes(min(_READY_AT_ONCE, most - end)), end)
        self._ready = end

    def _ends_in_zeros(self, end: int) -> bool:
        """Whether another process has made it ready."""
        zeros = bytes(_A_FRAME)
        return os.pread(self.descriptor, len(zeros), max(0, end - len(zeros))) == zeros


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
