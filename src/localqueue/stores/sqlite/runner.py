"""How a transaction is made: who may write, when it begins, and when it is durable.

What a verb does inside it is not known here.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from localqueue.clock import Now, read_now
from localqueue.errors import LocalQueueError, StoreBusy, StoreClosed, StoreCorrupt, StoreError
from localqueue.stores.protocol import QueueIsFull
from localqueue.stores.sqlite import connection, fork
from localqueue.stores.sqlite.identity import Identity
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.verbs.fold import fold_sometimes
from localqueue.stores.sqlite.view import FileState, Transaction, View
from localqueue.stores.sqlite.wakeup import Wakeups

R = TypeVar("R")


class Runner(Protocol):
    """Runs verbs."""

    def write(self, verb: Callable[[Transaction], R], now: Now) -> R:
        """Run the verb in a transaction: durable when this returns, undone if it raises."""

    def read(self, verb: Callable[[View], R]) -> R:
        """Run the verb on a consistent state, without waiting for writers."""

    def close(self) -> None: ...


class FileRunner:
    """One writing connection per process, and reading ones beside it."""

    def __init__(self, path: Path, *, durability: str, timeout: float, wakeups: Wakeups) -> None:
        self._path = path
        self._durability = durability
        self._timeout = timeout
        self._wakeups = wakeups
        self._closed = False
        self._open: _OpenFile | None = None
        self._inode: tuple[int, int] | None = None
        self._abandoned: list[_OpenFile] = []
        self._make_locks()
        fork.watch(self)

    def _make_locks(self) -> None:
        self._writing = threading.Lock()
        self._changed = threading.Condition()
        self._forking = False

    def write(self, verb: Callable[[Transaction], R], now: Now) -> R:
        if not self._writing.acquire(timeout=self._timeout):
            raise StoreBusy(f"{self._path}: another thread held it for longer than the timeout")
        try:
            with self._changed:
                file = self._opened()
            with self._translated():
                answer, tx = run_write(file.writer, file.state, verb, now, str(self._path))
        finally:
            self._writing.release()
        self._wakeups.tell(tx.ready, tx.room)
        return answer

    def read(self, verb: Callable[[View], R]) -> R:
        with self._changed:
            file = self._opened()
            db = file.readers.pop() if file.readers else None
            file.reading += 1
        try:
            with self._translated():
                if db is None:
                    db = connection.connect_to_read(self._path, timeout=self._timeout)
                return run_read(db, file.state, verb, str(self._path))
        finally:
            self._give_back(file, db)

    def close(self) -> None:
        with self._writing, self._changed:
            self._closed = True
            self._close_file()

    def before_fork(self) -> None:
        """Close the file, so that no connection crosses: both sides open it again when needed.

        SQLite takes the locks of an inherited connection for its own, so a child that opened the
        file beside one would hold none, and the parent's close would take its puts away.
        """
        if not self._writing.acquire(timeout=self._timeout):
            return
        self._changed.acquire()
        self._forking = True
        file = self._open
        if file is None or self._changed.wait_for(lambda: not file.reading, self._timeout):
            self._close_file()

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            # Threads that did not come along may have held them.
            self._make_locks()
            self._wakeups.after_fork_in_child()
        elif self._forking:
            self._forking = False
            self._changed.release()
            self._writing.release()

    def _close_file(self) -> None:
        file, self._open = self._open, None
        if file is not None:
            if file.pid == os.getpid():
                file.close()
            else:
                self._abandoned.append(file)

    def _give_back(self, file: _OpenFile, db: sqlite3.Connection | None) -> None:
        with self._changed:
            file.reading -= 1
            self._changed.notify_all()
            if db is None:
                return
            if file is self._open and len(file.readers) < 8:
                file.readers.append(db)
                return
        db.close()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except connection.DRIVER_ERRORS as error:
            if self._inode is not None:
                # What SQLite says of a file that goes away in the middle is anybody's guess.
                connection.check_same_file(self._path, self._inode)
            raise connection.translate(error, str(self._path)) from error

    def _opened(self) -> _OpenFile:
        """The open file; under the lock. Opened at first use, and again after a fork."""
        if self._closed:
            raise StoreClosed(f"{self._path}: the store was closed")
        if self._inode is not None:
            connection.check_same_file(self._path, self._inode)
        if self._open is not None and self._open.pid != os.getpid():
            # A connection that crossed a fork all the same: closing it here would touch the
            # parent's file, so it is only kept from being collected.
            self._close_file()
        if self._open is None:
            with self._translated():
                self._open = _OpenFile.open(self._path, self._durability, self._timeout)
            self._inode = self._open.inode
        return self._open


class _OpenFile:
    """The connections of one process to one file."""

    def __init__(self, writer: sqlite3.Connection, inode: tuple[int, int]) -> None:
        self.pid = os.getpid()
        self.inode = inode
        self.writer = writer
        self.readers: list[sqlite3.Connection] = []
        self.reading = 0
        """Readers at work: their connections are not in the list."""
        self.state = FileState(Identity(writer.execute(SQL.identities).fetchall()))

    @classmethod
    def open(cls, path: Path, durability: str, timeout: float) -> _OpenFile:
        inode = connection.prepare_file(path)
        writer = connection.connect(path, durability=durability, timeout=timeout)
        try:
            connection.bring_up_to_date(writer, str(path))
            return cls(writer, inode)
        except BaseException:
            writer.close()
            raise

    def close(self) -> None:
        for db in (*self.readers, self.writer):
            db.close()


class MemoryRunner:
    """One database in this process's memory, for one thread at a time."""

    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self._lock = threading.RLock()
        self._pid = os.getpid()
        connection.check_sqlite()
        self._db: sqlite3.Connection | None = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=256
        )
        connection.configure(self._db)
        connection.bring_up_to_date(self._db, "memory")
        self._state = FileState(Identity(self._db.execute(SQL.identities).fetchall()))

    def write(self, verb: Callable[[Transaction], R], now: Now) -> R:
        with self._opened() as db:
            answer, tx = run_write(db, self._state, verb, now, "memory")
        self._wakeups.tell(tx.ready, tx.room)
        return answer

    def read(self, verb: Callable[[View], R]) -> R:
        with self._opened() as db:
            return run_read(db, self._state, verb, "memory")

    def close(self) -> None:
        with self._lock:
            if self._db is not None and self._pid == os.getpid():
                self._db.close()
            self._db = None

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        if self._pid != os.getpid():
            raise StoreError("a memory store does not cross a fork; make one in the child")
        with self._lock, connection.translated("memory"):
            if self._db is None:
                raise StoreClosed("the memory store was closed")
            yield self._db


def run_write(
    db: sqlite3.Connection,
    state: FileState,
    verb: Callable[[Transaction], R],
    now: Now,
    where: str,
) -> tuple[R, Transaction]:
    """One transaction around a verb; undone when the verb raises."""
    try:
        # Inside: an interrupt may come right after the lock was given.
        db.execute("BEGIN IMMEDIATE")
        tx = Transaction(db, state, read_now(now))
        answer = verb(tx)
        tx.finish()
        fold_sometimes(tx)
        db.execute("COMMIT")
        tx.committed()
    except BaseException as error:
        _undo(db)
        _raise_if_damaged(db, error, where)
        raise
    return answer, tx


def run_read(db: sqlite3.Connection, state: FileState, verb: Callable[[View], R], where: str) -> R:
    try:
        db.execute("BEGIN")
        return verb(View(db, state))
    except Exception as error:
        _raise_if_damaged(db, error, where)
        raise
    finally:
        _undo(db)


def _undo(db: sqlite3.Connection) -> None:
    # SQLite may have rolled back by itself already.
    with contextlib.suppress(sqlite3.Error):
        if db.in_transaction:
            db.execute("ROLLBACK")


def _raise_if_damaged(db: sqlite3.Connection, error: BaseException, where: str) -> None:
    """A verb that trips over what it reads may have met damage: SQLite is asked first."""
    expected = (LocalQueueError, QueueIsFull, *connection.DRIVER_ERRORS)
    if isinstance(error, expected) or not isinstance(error, Exception):
        return
    try:
        answers = [row[0] for row in db.execute("PRAGMA quick_check(1)")]
    except sqlite3.Error as broken:
        answers = [str(broken)]
    if answers != ["ok"]:
        raise StoreCorrupt(f"{where}: the file is damaged ({answers[0]})") from error
