"""What the same work costs in plain SQLite statements: the yardstick.

One connection, WAL, the same settings as the store has, one table and one partial index. It keeps
no journal, no counts and no receipts, encodes no values and checks nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from benchmarks.durability import SYNCHRONOUS, Durability
from localqueue.stores.sqlite.connection import CHECKPOINT_AT

SCHEMA = """
    CREATE TABLE IF NOT EXISTS
        message (id INTEGER PRIMARY KEY, queue INTEGER, state INTEGER, value BLOB) STRICT;
    CREATE INDEX IF NOT EXISTS ready ON message (queue) WHERE state = 0;
"""
INSERT = "INSERT INTO message (queue, state, value) VALUES (1, 0, ?)"
READY = "SELECT id, value FROM message WHERE queue = 1 AND state = 0 ORDER BY id LIMIT ?"


class RawTable:
    """A queue of bytes in as few statements as it takes."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self._db = db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA journal_mode = wal")
        db.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
        db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_AT}")
        db.execute("PRAGMA temp_store = memory")
        db.execute("PRAGMA cache_size = -16384")
        db.executescript(SCHEMA)

    def put_many(self, values: Sequence[bytes]) -> None:
        """All in one transaction."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        db.executemany(INSERT, [(value,) for value in values])
        db.execute("COMMIT")

    def take_many(self, limit: int) -> list[bytes]:
        """Claim in one transaction, delete in a second one."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        rows = db.execute(READY, (limit,)).fetchall()
        ids = json.dumps([row[0] for row in rows])
        db.execute(
            "UPDATE message SET state = 1 WHERE id IN (SELECT value FROM json_each(?))", (ids,)
        )
        db.execute("COMMIT")
        db.execute("BEGIN IMMEDIATE")
        db.execute("DELETE FROM message WHERE id IN (SELECT value FROM json_each(?))", (ids,))
        db.execute("COMMIT")
        return [row[1] for row in rows]

    def put(self, value: bytes) -> None:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        db.execute(INSERT, (value,))
        db.execute("COMMIT")

    def take(self) -> bytes:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        number, value = db.execute(READY, (1,)).fetchone()
        db.execute("UPDATE message SET state = 1 WHERE id = ?", (number,))
        db.execute("COMMIT")
        db.execute("BEGIN IMMEDIATE")
        db.execute("DELETE FROM message WHERE id = ?", (number,))
        db.execute("COMMIT")
        found: bytes = value
        return found

    def close(self) -> None:
        self._db.close()
