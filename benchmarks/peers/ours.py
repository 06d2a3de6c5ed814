"""This queue, with leases and without."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.durability import Durability
from benchmarks.peers.contestant import Contestant, Entrant, Value
from localqueue import AtMostOnceDelivery, PersistentQueue
from localqueue.stores.sqlite.store import SQLiteQueueStore


class Ours(Contestant):
    """``put``, ``get_message`` and ``ack`` with the default policies: journal, receipts, counts."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        self._store = SQLiteQueueStore(folder / "queue.sqlite3", durability=durability)
        self._queue = self._open()

    def _open(self) -> PersistentQueue[Any]:
        return PersistentQueue("jobs", store=self._store)

    def put(self, value: Value) -> object:
        return self._queue.put(value)

    def take(self, count: int) -> Sequence[Value]:
        queue = self._queue
        taken = []
        for _ in range(count):
            message = queue.get_message(block=False)
            queue.ack(message)
            taken.append(message.value)
        return taken

    def fill(self, values: Sequence[Value]) -> None:
        self._queue.put_stream(values)

    def close(self) -> None:
        self._queue.close()
        self._store.close()


class OursAtMostOnce(Ours):
    """The same promise as a queue without acknowledgement: what is got is gone."""

    def _open(self) -> PersistentQueue[Any]:
        return PersistentQueue("jobs", store=self._store, delivery_policy=AtMostOnceDelivery())

    def take(self, count: int) -> Sequence[Value]:
        return [self._queue.get(block=False) for _ in range(count)]


LEASED = Entrant("localqueue", "ours", Ours)
AT_MOST_ONCE = Entrant(
    "localqueue",
    "ours",
    OursAtMostOnce,
    ", at most once",
    acknowledges=False,
    lacks="ack",
)
