"""The face of ``sqlite3`` over apsw: the product on a SQLite whose files a test stands behind.

apsw brings a SQLite library of its own. Two libraries must not meet on a file in one process, so
only processes of these tests use this, never the one that pytest runs in.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import apsw

_OPERATIONAL = {
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_ABORT,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_SCHEMA,
}


@contextmanager
def _errors_of_sqlite3() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        code = getattr(error, "extendedresult", 0) or sqlite3.SQLITE_MISUSE
        kind: type[sqlite3.Error] = sqlite3.DatabaseError
        if code & 0xFF in _OPERATIONAL:
            kind = sqlite3.OperationalError
        elif code & 0xFF == sqlite3.SQLITE_CONSTRAINT:
            kind = sqlite3.IntegrityError
        raised = kind(str(error))
        raised.sqlite_errorcode = code
        raise raised from error


class Cursor:
    """Rows of one statement at a time."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self._cursor = db.cursor()
        self.rowcount = -1

    def execute(self, statement: str, values: Any = ()) -> Cursor:
        before = self._db.total_changes()
        with _errors_of_sqlite3():
            self._cursor.execute(statement, values or None)
        self.rowcount = self._db.total_changes() - before
        return self

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> Cursor:
        before = self._db.total_changes()
        with _errors_of_sqlite3():
            self._cursor.executemany(statement, rows)
        self.rowcount = self._db.total_changes() - before
        return self

    def fetchone(self) -> Any:
        with _errors_of_sqlite3():
            return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        with _errors_of_sqlite3():
            return self._cursor.fetchall()

    def fetchmany(self, size: int = 1) -> list[Any]:
        return [row for _ in range(size) if (row := self.fetchone()) is not None]

    def __iter__(self) -> Cursor:
        return self

    def __next__(self) -> Any:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    @property
    def lastrowid(self) -> int:
        return self._db.last_insert_rowid()

    def close(self) -> None:
        self._cursor.close(True)


class Connection:
    """As much of ``sqlite3.Connection`` as the store uses, without transactions of its own."""

    isolation_level = None
    _checkpoint_at = 1000

    def __init__(self, name: str, flags: int, vfs: str | None, timeout: float) -> None:
        with _errors_of_sqlite3():
            self._db = apsw.Connection(name, flags=flags, vfs=vfs)
            self._db.set_busy_timeout(round(timeout * 1000))

    def cursor(self) -> Cursor:
        return Cursor(self._db)

    def execute(self, statement: str, values: Any = ()) -> Cursor:
        if statement.startswith("PRAGMA wal_autocheckpoint"):
            return self._autocheckpoint(statement)
        return Cursor(self._db).execute(statement, values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> Cursor:
        return Cursor(self._db).executemany(statement, rows)

    def _autocheckpoint(self, statement: str) -> Cursor:
        """SQLite's own passes over what fails in it; apsw would raise that from the COMMIT."""
        if "=" in statement:
            self._checkpoint_at = int(statement.split("=")[1])
            self._db.set_wal_hook(self._after_commit)
        return Cursor(self._db).execute(f"SELECT {self._checkpoint_at}")

    def _after_commit(self, db: apsw.Connection, name: str, frames: int) -> int:
        if frames >= self._checkpoint_at:
            with suppress(apsw.Error):
                db.wal_checkpoint(name)
        return apsw.SQLITE_OK

    def close(self) -> None:
        # What fails in the last checkpoint is passed over here, too.
        with suppress(apsw.IOError, apsw.FullError):
            self._db.close(True)

    def interrupt(self) -> None:
        self._db.interrupt()

    def set_progress_handler(self, handler: Any, n: int) -> None:
        self._db.set_progress_handler(handler, n)

    def backup(self, target: Connection, *, pages: int = -1, **_: Any) -> None:
        with _errors_of_sqlite3(), target._db.backup("main", self._db, "main") as running:
            while not running.done:
                running.step(pages)

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    @property
    def total_changes(self) -> int:
        return self._db.total_changes()


class Driver:
    """Connects through a VFS; its ``connect`` stands in for that of ``sqlite3``."""

    def __init__(self, vfs: str | None = None) -> None:
        self._vfs = vfs
        self.connection: type[Connection] = Connection

    def connect(
        self,
        database: str,
        timeout: float = 5.0,
        isolation_level: None = None,
        check_same_thread: bool = True,
        cached_statements: int = 128,
        uri: bool = False,
    ) -> Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        if uri:
            flags |= apsw.SQLITE_OPEN_URI
        vfs = None if database == ":memory:" else self._vfs
        return self.connection(str(database), flags, vfs, timeout)

    def install(self) -> None:
        """From now on whoever calls ``sqlite3.connect`` in this process gets apsw."""
        sqlite3.connect = self.connect  # type: ignore[assignment]
