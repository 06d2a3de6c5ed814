"""A process's hold on a file: opened at first use, again after a fork, and closed for good."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator

from localqueue.errors import StoreBusy, StoreClosed, StoreError
from localqueue.stores.sqlite import connection
from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.opened import OpenFile

MOST_READERS = 8
"""Connections that are kept for the next who reads."""
SURE_FOR = 0.002
"""Seconds between two looks whether our lock is that of others: one takes a tenth of a put."""
FAULTS = (*connection.DRIVER_ERRORS, OSError)


class Holding:
    """The open file, and those who read it."""

    def __init__(
        self, companions: Companions, *, durability: str, timeout: float, network: bool
    ) -> None:
        self.path = companions.database
        self.name = str(self.path)
        self._companions = companions
        self._durability = durability
        self._timeout = timeout
        self._network = network
        self._closed = False
        self._file: OpenFile | None = None
        self._inode: tuple[int, int] | None = None
        self._abandoned: list[OpenFile] = []
        self._doubted = False
        """Whether the next who writes opens it anew: SQLite said that the file cannot be read, and
        that may have been a passing fault of the disk; or our lock is not that of others."""
        self._sure_until = 0.0
        """Up to which deadline our lock is taken for that of others without another look."""
        self._make_locks()

    def _make_locks(self) -> None:
        self._mutex = threading.Lock()
        self._changed = threading.Condition(self._mutex)
        self._forking = False
        self._opening = False

    @property
    def file(self) -> OpenFile | None:
        """The file if it is open."""
        return self._file

    @property
    def is_closed(self) -> bool:
        return self._closed

    def opened(self, deadline: float) -> OpenFile:
        """For the one who writes: it may be opened anew.

        Whether it is still the same file is looked at when the lock is held, before anything is
        stored. One that goes away later takes what was stored with it, as it would after the
        answer.
        """
        file = self._file
        if file is not None and not (self._closed or self._doubted) and file.pid == os.getpid():
            # Nobody takes it away from one who writes.
            now = time.monotonic()
            if now < self._sure_until:
                return file
            if file.lock.is_in_place():
                self._sure_until = now + SURE_FOR
                return file
            return self._opened_anew(deadline)
        with self._mutex:
            if self._doubted and self._file is not None and self._unread(deadline):
                self._doubted = False
                self._close_file()
            return self._opened(deadline)

    def _opened_anew(self, deadline: float) -> OpenFile:
        """Its folder was removed: who opens it now has another lock, and would note beside us."""
        with self._mutex:
            if not self._unread(deadline):
                raise StoreBusy(
                    f"{self.name}: its folder of locks was removed, and it cannot be opened anew"
                    " while somebody reads it"
                )
            self._close_file()
            return self._opened(deadline)

    @contextlib.contextmanager
    def reading(self) -> Iterator[tuple[OpenFile, sqlite3.Connection]]:
        """For one who reads: the file stays open meanwhile."""
        deadline = time.monotonic() + self._timeout
        with self._mutex:
            if self._forking:
                # Others would never see the end of those who read.
                self._changed.wait_for(lambda: not self._forking, deadline - time.monotonic())
            file = self._opened(deadline)
            db = file.readers.pop() if file.readers else None
            file.reading += 1
        try:
            if db is None:
                db = connection.connect_to_read(self.path, timeout=self._timeout)
            yield file, db
        finally:
            self._give_back(file, db)

    def refuse(self) -> None:
        """Whoever comes from now on hears that it is closed."""
        self._closed = True

    def close(self, patience: float) -> None:
        """For good; whoever reads is waited for."""
        deadline = time.monotonic() + patience
        with self._mutex:
            if self._file is not None and self._file.reading and self._file.pid == os.getpid():
                # Who finds something in the daybook could no longer have it posted.
                self._file.post_the_rest(deadline)
            if self._unread(deadline):
                self._close_file()

    def translate(self, error: Exception) -> Exception:
        """The driver's error as one of ours; others as they are."""
        if isinstance(error, StoreError) or not isinstance(error, FAULTS):
            return error
        if self._inode is not None:
            # What SQLite says of a file that goes away in the middle is anybody's guess.
            try:
                connection.check_same_file(self.name, self._inode)
            except StoreError as moved:
                return moved
        self._doubted = self._doubted or connection.is_doubtful(error)
        translated = connection.translate(error, self.name)
        translated.__cause__ = error
        return translated

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        try:
            yield
        except FAULTS as error:
            raise self.translate(error) from error

    # --- around a fork --------------------------------------------------------------------------
    def before_fork(self) -> None:
        """Close the file, so that no connection crosses; it is opened again when needed.

        SQLite takes the locks of an inherited connection for its own, so a child that opened the
        file beside one would hold none, and the parent's close would take its puts away.
        """
        self._mutex.acquire()
        self._forking = True
        patience = self._timeout
        self._changed.wait_for(lambda: not self._opening, patience)
        if self._unread(time.monotonic() + self._timeout):
            # Waiters of this process sleep on at their FIFOs.
            self._close_file(tidy=False)

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            if self._file is not None:
                self._file.leave_to_parent()
            # Threads that did not come along may have held them.
            self._make_locks()
        elif self._forking:
            self._forking = False
            self._changed.notify_all()
            self._mutex.release()

    # --- with the lock --------------------------------------------------------------------------
    def _unread(self, deadline: float) -> bool:
        """Wait until nobody reads; whether that was in time."""
        file = self._file
        return file is None or self._changed.wait_for(
            lambda: not file.reading, max(0.0, deadline - time.monotonic())
        )

    def _opened(self, deadline: float) -> OpenFile:
        if self._opening and not self._changed.wait_for(
            lambda: not self._opening, max(0.0, deadline - time.monotonic())
        ):
            raise StoreBusy(f"{self.name}: another thread was opening it until the timeout")
        if self._closed:
            raise StoreClosed(f"{self.name}: the store was closed")
        if self._inode is not None:
            connection.check_same_file(self.name, self._inode)
        if self._file is not None and self._file.pid != os.getpid():
            # A connection that crossed a fork all the same: closing it here would touch the
            # parent's file, so it is only kept from being collected.
            self._close_file()
        if self._file is None:
            self._file = self._open(deadline)
            self._inode = self._file.inode
        return self._file

    def _open(self, deadline: float) -> OpenFile:
        """Without the lock: it may take long, and others have their own deadlines."""
        self._opening = True
        self._mutex.release()
        try:
            with self.translated():
                return OpenFile(
                    self._companions,
                    durability=self._durability,
                    timeout=self._timeout,
                    deadline=deadline,
                    network=self._network,
                )
        finally:
            self._mutex.acquire()
            self._opening = False
            self._changed.notify_all()

    def _close_file(self, *, tidy: bool = True) -> None:
        file, self._file = self._file, None
        if file is not None:
            if file.pid == os.getpid():
                file.close(tidy=tidy)
            else:
                self._abandoned.append(file)

    def _give_back(self, file: OpenFile, db: sqlite3.Connection | None) -> None:
        with self._mutex:
            file.reading -= 1
            self._changed.notify_all()
            if db is None:
                return
            if file is self._file and len(file.readers) < MOST_READERS:
                file.readers.append(db)
                return
        db.close()
