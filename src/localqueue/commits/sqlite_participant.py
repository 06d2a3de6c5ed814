"""A SQLite file of the user as a participant of a two-phase commit."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from localqueue.checks import check_seconds
from localqueue.codec import JSON_CODEC
from localqueue.errors import ConfigurationError, WrongType
from localqueue.message import QueueMessage
from localqueue.stores.sqlite.connection import translated
from localqueue.stores.sqlite.sql import APPLICATION_ID

_TABLE = """
CREATE TABLE IF NOT EXISTS localqueue_prepared (
    id TEXT PRIMARY KEY, message TEXT NOT NULL, result TEXT NOT NULL
) STRICT, WITHOUT ROWID
"""

Apply = Callable[[sqlite3.Connection, QueueMessage[Any], Any], object]


class SQLiteParticipant:
    """Applies the work of messages to a SQLite file, when all participants have prepared.

    ``apply(connection, message, result)`` changes the file; it must neither commit nor roll back.
    It is tried, and undone, in ``prepare``: what it refuses then aborts the transaction. The
    prepared work lies in the table ``localqueue_prepared`` of the file, and ``commit`` applies it
    and removes it in one transaction of the file: once, however often it is told. Another program
    may change the file in between, so that ``apply`` raises in ``commit``: then the work stays
    prepared, and is tried again until it succeeds.
    """

    def __init__(self, path: str | Path, apply: Apply, *, timeout: float = 15.0) -> None:
        if not callable(apply):
            raise WrongType(f"apply must be callable, not {type(apply).__name__}")
        self.path = Path(path).expanduser().absolute()
        self._apply = apply
        self._timeout = check_seconds("timeout", timeout)

    def prepare(self, transaction: str, message: QueueMessage[Any], result: Any) -> None:
        kept = {
            "id": message.id,
            "value": message.value,
            "queue": message.queue,
            "dedupe_key": message.dedupe_key,
            "headers": dict(message.headers),
        }
        row = (transaction, *(JSON_CODEC.encode(part).decode() for part in (kept, result)))
        with self._changing() as db:
            db.execute("SAVEPOINT trial")
            self._apply(db, message, result)
            db.execute("ROLLBACK TO trial")
            db.execute("RELEASE trial")
            self._run(db, "INSERT OR REPLACE INTO localqueue_prepared VALUES (?, ?, ?)", *row)

    def commit(self, transaction: str) -> None:
        with self._changing() as db:
            prepared = "SELECT message, result FROM localqueue_prepared WHERE id = ?"
            for row in self._run(db, prepared, transaction):
                message, result = map(json.loads, row)
                self._apply(db, QueueMessage(**message), result)
                self._remove(db, transaction)

    def abort(self, transaction: str) -> None:
        with self._changing() as db:
            self._remove(db, transaction)

    def in_doubt(self) -> list[str]:
        if not self.path.exists():
            return []
        with self._changing() as db:
            found = self._run(db, "SELECT id FROM localqueue_prepared ORDER BY id")
            return [transaction for (transaction,) in found]

    def __repr__(self) -> str:
        return f"SQLiteParticipant({str(self.path)!r})"

    def _remove(self, db: sqlite3.Connection, transaction: str) -> None:
        self._run(db, "DELETE FROM localqueue_prepared WHERE id = ?", transaction)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """A transaction on a connection of its own; durable when it ends well, else undone.

        What ``apply`` raises is the user's own error, and stays as it is.
        """
        with contextlib.closing(self._connect()) as db:
            self._run(db, "PRAGMA synchronous = FULL")
            self._run(db, "BEGIN IMMEDIATE")
            self._run(db, _TABLE)
            yield db
            self._run(db, "COMMIT")

    def _connect(self) -> sqlite3.Connection:
        with translated(str(self.path)):
            db = sqlite3.connect(self.path, timeout=self._timeout, isolation_level=None)
        [(application,)] = self._run(db, "PRAGMA application_id")
        if application == APPLICATION_ID:
            db.close()
            raise ConfigurationError(
                f"{self.path} is the file of a queue; a participant needs a file of its own"
            )
        return db

    def _run(self, db: sqlite3.Connection, statement: str, *values: str) -> list[Any]:
        with translated(str(self.path)):
            return db.execute(statement, values).fetchall()
