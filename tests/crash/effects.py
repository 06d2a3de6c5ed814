"""Effects outside the queue that survive the process: files, and rows in files of their own."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from localqueue.message import QueueMessage


class Sent:
    """What a relay has sent: a line for each time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "sent"

    def send(self, envelope: dict[str, Any]) -> None:
        with self._path.open("a") as sent:
            sent.write(f"{envelope['dedupe_key']}\n")
            sent.flush()
            os.fsync(sent.fileno())

    def keys(self) -> list[str]:
        return self._path.read_text().split() if self._path.exists() else []


class Rooms:
    """What a saga has booked: a file for each room, which is there or is not."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "rooms"
        self._folder.mkdir(exist_ok=True)

    def book(self, name: str, message: QueueMessage[Any]) -> None:
        (self._folder / f"{name} {message.dedupe_key}").touch()

    def cancel(self, name: str, message: QueueMessage[Any]) -> None:
        (self._folder / f"{name} {message.dedupe_key}").unlink(missing_ok=True)

    def booked(self) -> list[str]:
        return sorted(path.name for path in self._folder.iterdir())


def add_row(db: sqlite3.Connection, message: QueueMessage[Any], result: Any) -> None:
    """What a participant applies; nothing makes the row unique."""
    db.execute("CREATE TABLE IF NOT EXISTS paid (key TEXT)")
    db.execute("INSERT INTO paid VALUES (?)", (message.dedupe_key,))


def rows(path: Path) -> list[str]:
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'paid'").fetchall():
            return []
        return [key for (key,) in db.execute("SELECT key FROM paid")]
