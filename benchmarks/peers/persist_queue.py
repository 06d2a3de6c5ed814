"""persist-queue's two queues on SQLite, which have no option for the durability."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.durability import Durability
from benchmarks.peers.contestant import Contestant, Entrant, Value


class PersistQueue(Contestant):
    """``SQLiteQueue``: what is got is gone."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        from persistqueue import SQLiteQueue

        self._queue = SQLiteQueue(str(folder), auto_commit=True)

    def put(self, value: Value) -> object:
        return self._queue.put(value)

    def take(self, count: int) -> Sequence[Value]:
        return [self._queue.get(block=False) for _ in range(count)]

    def close(self) -> None:
        self._queue.close()


class PersistAckQueue(Contestant):
    """``SQLiteAckQueue``: what was not acknowledged comes back when the file is opened again."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        from persistqueue import SQLiteAckQueue

        self._queue = SQLiteAckQueue(str(folder))

    def put(self, value: Value) -> object:
        return self._queue.put(value)

    def take(self, count: int) -> Sequence[Value]:
        queue = self._queue
        taken = []
        for _ in range(count):
            item = queue.get(block=False)
            queue.ack(item)
            taken.append(item)
        return taken

    def tidy(self) -> None:
        # It walks over every acknowledged message to find the next one.
        self._queue.clear_acked_data(max_delete=1_000_000, keep_latest=0)

    def close(self) -> None:
        self._queue.close()


def durability_of_sqlite() -> Durability:
    """What a database in WAL mode has when nothing is said: how SQLite was built decides."""
    with closing(sqlite3.connect(":memory:")) as db:
        options = {option for (option,) in db.execute("PRAGMA compile_options")}
    return "relaxed" if "DEFAULT_WAL_SYNCHRONOUS=1" in options else "full"


WITH_ACK = Entrant(
    "persist-queue",
    "peer",
    PersistAckQueue,
    ", with ack",
    durabilities=(durability_of_sqlite(),),
    needs=("persistqueue",),
    distribution="persist-queue",
    lacks="lease expiry, journal",
)
WITHOUT_ACK = Entrant(
    "persist-queue",
    "peer",
    PersistQueue,
    acknowledges=False,
    durabilities=(durability_of_sqlite(),),
    needs=("persistqueue",),
    distribution="persist-queue",
    lacks="ack, journal",
)
