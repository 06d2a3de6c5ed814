"""huey with its SQLite storage."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.durability import Durability
from benchmarks.peers.contestant import Contestant, Entrant, Value


class Relaxed(sqlite3.Connection):
    """A connection that syncs at checkpoints only, as ``relaxed`` does.

    huey's own ``fsync=False`` would be ``synchronous=OFF``, where a power cut may damage the file.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.execute("PRAGMA synchronous = NORMAL")


class Huey(Contestant):
    """A task is called, and dequeued without running it."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        from huey import SqliteHuey

        options = {"fsync": True} if durability == "full" else {"factory": Relaxed}
        self._huey = SqliteHuey("jobs", filename=str(folder / "huey.sqlite3"), **options)
        self._task = self._huey.task()(handle)

    def put(self, value: Value) -> object:
        return self._task(value)

    def take(self, count: int) -> Sequence[Value]:
        return [self._huey.dequeue().args[0] for _ in range(count)]

    def close(self) -> None:
        self._huey.storage.close()


def handle(value: Value) -> None:
    """What a task would do."""


ENTRANT = Entrant(
    "huey",
    "peer",
    Huey,
    acknowledges=False,
    needs=("huey",),
    lacks="ack, journal",
)
