"""Writes down what happens to the files of a database, in the order of all its processes."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from tests.faults.driver import Driver
from tests.faults.files import NAME, Files, Watcher, watch_python
from tests.faults.records import (
    CREATE,
    DELETE,
    LOST,
    MARK,
    RENAME,
    SYNC,
    SYNC_FOLDER,
    TRUNCATE,
    WRITE,
    append_record,
)


class Recorder(Watcher):
    """Each thing and its record are made under one lock, so that their order is the same.

    ``unsynced`` is a defect: how a path ends whose syncs are left out, or ``folder``.
    """

    def __init__(self, log: str, database: Path, *, unsynced: str | None = None) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._thread = threading.RLock()
        self._lock = fcntl.flock
        self._database = database
        self._unsynced = unsynced

    def install(self) -> None:
        self._files = Files(self)
        Driver(NAME).install()
        watch_python(self, self._database)

    def mark(self, *what: Any) -> None:
        """Something was answered now."""
        with self.alone():
            self.record(MARK, *what)

    def open(self, path: str, creates: bool, go: Callable[[], Any]) -> Any:
        with self.alone():
            existed = Path(path).exists()
            answer = go()
            if not existed:
                self.record(CREATE, Path(path).name, Path(path).stat().st_ino)
            return answer

    def write(self, inode: int, offset: int, data: bytes, go: Callable[[], None]) -> None:
        with self.alone():
            go()
            self.record(WRITE, inode, offset, data)

    def truncate(self, inode: int, size: int, go: Callable[[], None]) -> None:
        with self.alone():
            go()
            self.record(TRUNCATE, inode, size)

    def sync(self, inode: int, path: str, by: str, go: Callable[[], None]) -> None:
        if self._unsynced is not None and path.endswith(self._unsynced):
            return
        # The sync itself is left out: the disk is a simulated one.
        with self.alone():
            self._sync(inode, path, by)

    def _sync(self, inode: int, path: str, by: str) -> None:
        self.record(SYNC, inode)

    def sync_folder(self, go: Callable[[], None]) -> None:
        if self._unsynced != "folder":
            with self.alone():
                self.record(SYNC_FOLDER)

    def delete(self, path: str, go: Callable[[], None]) -> None:
        with self.alone():
            go()
            self.record(DELETE, Path(path).name)

    def rename(self, path: str, to: str, go: Callable[[], None]) -> None:
        with self.alone():
            go()
            self.record(RENAME, Path(path).name, Path(to).name)

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._thread:
            self._lock(self._log, fcntl.LOCK_EX)
            try:
                yield
            finally:
                self._lock(self._log, fcntl.LOCK_UN)

    def record(self, *record: Any) -> None:
        append_record(self._log, record)


class FailingDisk(Recorder):
    """A disk that once cannot write what a file was given, and says so when it is synced.

    As on Linux: what could not be written is let go and never tried again, and every descriptor
    that was open at the time is told once, with its next sync. It happens at a sync of this number
    that Python makes, or SQLite, of the file whose name ends so.
    """

    def __init__(self, log: str, database: Path, *, fails_at: int, of: str, end: str) -> None:
        super().__init__(log, database)
        self._failures = os.open(f"{log}-failures", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._fails_at = fails_at
        self._of = of
        self._end = end
        self._syncs = 0
        self._told: dict[tuple[str, int], int] = {}

    def open(self, path: str, creates: bool, go: Callable[[], Any]) -> Any:
        answer = super().open(path, creates, go)
        if path.endswith(_SYNCED):
            inode = Path(path).stat().st_ino
            if isinstance(answer, int):
                self._told["Python", inode] = self._failed(inode)
            else:
                # A second connection has a descriptor of its own, but does not sync.
                self._told.setdefault(("SQLite", inode), self._failed(inode))
        return answer

    def _sync(self, inode: int, path: str, by: str) -> None:
        if path.endswith(_SYNCED):
            its_turn = by == self._of and path.endswith(self._end)
            self._syncs += its_turn
            if its_turn and self._syncs == self._fails_at:
                self.record(LOST, inode)
                os.write(self._failures, b"%20d" % inode)
            if self._told[by, inode] < self._failed(inode):
                self._told[by, inode] = self._failed(inode)
                self.record(SYNC, inode)
                raise _INPUT_OUTPUT_ERRORS[by]()
        super()._sync(inode, path, by)

    def _failed(self, inode: int) -> int:
        """How often, in all processes."""
        written = os.pread(self._failures, 1_000_000, 0)
        failed = [int(written[at : at + 20]) for at in range(0, len(written), 20)]
        return failed.count(inode)


_SYNCED = ("-wal", "-daybook")
_INPUT_OUTPUT_ERRORS: dict[str, Callable[[], Exception]] = {
    "SQLite": lambda: apsw.exception_for(apsw.SQLITE_IOERR_FSYNC),
    "Python": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
}
