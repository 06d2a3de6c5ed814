"""Giving back to the system what a file no longer needs."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from localqueue.stores.sqlite import connection
from localqueue.stores.sqlite.companions import Companions

R = TypeVar("R")
TEMP_STORE_FILE, TEMP_STORE_MEMORY = 1, 2


class Exclusive(Protocol):
    """Who can keep everybody else from writing."""

    def exclusively(self, work: Callable[[sqlite3.Connection], R]) -> R: ...


@dataclass(frozen=True, slots=True)
class VacuumReport:
    """The size of the file and its -wal, before and after."""

    bytes_before: int
    bytes_after: int
    seconds: float

    @property
    def bytes_freed(self) -> int:
        return max(0, self.bytes_before - self.bytes_after)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "bytes_freed": self.bytes_freed}


def vacuum(path: Path, runner: Exclusive) -> VacuumReport:
    """Write the file anew without its free pages; see ``SQLiteQueueStore.vacuum``."""
    began = time.monotonic()

    def work(db: sqlite3.Connection) -> tuple[int, int]:
        before = _size(path)
        with connection.translated(str(path)):
            _rewrite(db)
            # Everything is in the -wal now. While somebody reads an older state of it, the rest
            # is done by a later checkpoint.
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return before, _size(path)

    before, after = runner.exclusively(work)
    return VacuumReport(before, after, time.monotonic() - began)


def _rewrite(db: sqlite3.Connection) -> None:
    # The copy it makes on the way goes to a file: in memory it would need as much of that.
    db.execute(f"PRAGMA temp_store = {TEMP_STORE_FILE}")
    try:
        db.execute("VACUUM")
    finally:
        db.execute(f"PRAGMA temp_store = {TEMP_STORE_MEMORY}")


def _size(path: Path) -> int:
    companions = Companions(path)
    files = (companions.database, companions.wal)
    return sum(file.stat().st_size for file in files if file.exists())
