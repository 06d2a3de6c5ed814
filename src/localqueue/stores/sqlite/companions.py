"""The files beside a database: locks, FIFOs and ballast, in one folder of its own."""

from __future__ import annotations

import os
from pathlib import Path


class Companions:
    """Where they are. All can be deleted while no process has the database open."""

    def __init__(self, database: Path) -> None:
        # Beside the real file, as SQLite does with its -wal: two names of it share one lock.
        self.database = Path(os.path.realpath(database))
        self.wal = self.database.with_name(f"{self.database.name}-wal")
        self.folder = self.database.with_name(f"{self.database.name}-run")
        self.lock = self.folder / "lock"
        self.turn = self.folder / "turn"
        self.ballast = self.folder / "ballast"

    def make_folder(self) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)

    def fifo(self, what: str, queue: int) -> Path:
        """``ready`` or ``room`` of a queue, by its row number; 0 is told of new queues."""
        return self.folder / f"{what}-{queue}"
