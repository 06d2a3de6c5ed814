"""A long look at a file: one snapshot, on a connection of its own, while others go on writing."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from localqueue.stores.sqlite import connection, fork, open_files

R = TypeVar("R")
LOOK_UP = 20_000
"""Steps of SQLite between two moments at which it can be interrupted; some milliseconds."""
LONGEST_STOP = 15.0

Progress = Callable[[int, int], object]
"""Told how much is done, and of how much."""


def in_one_snapshot(path: Path, timeout: float, work: Callable[[Snapshot], R]) -> R:
    """Do it on one consistent state of the file; errors are those of the tree.

    No connection may cross a fork. When another thread forks, the work is undone and begins anew
    afterwards: it must leave nothing behind when it is interrupted.
    """
    while True:
        snapshot = Snapshot(path, timeout)
        # Waits while a fork is going on.
        fork.watch(snapshot)
        try:
            return snapshot.run(work)
        except _Forking:
            continue


class Snapshot:
    """A reading connection inside a transaction that has begun."""

    db: sqlite3.Connection

    def __init__(self, path: Path, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._thread = threading.get_ident()
        self._is_open = False
        self._stop: _Forking | None = None
        self._make_locks()

    def _make_locks(self) -> None:
        self._opening = threading.Lock()
        self._closed = threading.Event()

    def run(self, work: Callable[[Snapshot], R]) -> R:
        with connection.translated(str(self._path)):
            try:
                self._open()
                return work(self)
            except sqlite3.OperationalError as error:
                if self._stop is not None:
                    raise self._stop from None
                if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                    # A signal's handler raised while SQLite looked up, which kept it to itself.
                    raise KeyboardInterrupt from None
                raise
            finally:
                self._close()

    def pause(self) -> None:
        """Between two slices of the work: raises when it has to stop."""
        if self._stop is not None:
            raise self._stop

    def can_interrupt(self, db: sqlite3.Connection) -> None:
        """Ctrl-C, or a fork, ends a statement of this connection, however long it takes."""
        db.set_progress_handler(self._look_up, LOOK_UP)

    def before_fork(self) -> None:
        self._opening.acquire()
        if self._is_open and self._thread != threading.get_ident():
            self._stop = _Forking()
            self._closed.wait(LONGEST_STOP)

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            # The thread that worked here did not come along.
            self._is_open = False
            self._make_locks()
        else:
            self._opening.release()

    def _open(self) -> None:
        with self._opening:
            with connection.os_errors(self._path):
                stat = self._path.stat()
            self._inode = (stat.st_dev, stat.st_ino)
            open_files.take(self._inode)
            self._is_open = True
        self.db = connection.connect_to_read(self._path, timeout=self._timeout)
        self.can_interrupt(self.db)
        self.db.execute("BEGIN")
        # Only the first statement that reads takes the snapshot.
        self.db.execute("SELECT count(*) FROM sqlite_master").fetchone()

    def _close(self) -> None:
        if self._is_open:
            if hasattr(self, "db"):
                self.db.close()
            open_files.give_back(self._inode)
            self._is_open = False
        self._closed.set()

    def _look_up(self) -> bool:
        return self._stop is not None


class _Forking(Exception):
    """Another thread is about to fork."""
