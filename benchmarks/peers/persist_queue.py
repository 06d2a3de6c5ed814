"""persist-queue's two queues on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.durability import Durability
from benchmarks.peers.contestant import Contestant, Entrant, Value

ALWAYS_SYNCED = "every commit is synced, which it has no option to change"


class PersistQueue(Contestant):
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
        self._queue.clear_acked_data(max_delete=1_000_000, keep_latest=0)

    def close(self) -> None:
        self._queue.close()


WITH_ACK = Entrant(
    "persist-queue, ack",
    "peer",
    PersistAckQueue,
    durabilities=("full",),
    needs=("persistqueue",),
    distribution="persist-queue",
    remark=f"`SQLiteAckQueue`: one consuming process, no journal; {ALWAYS_SYNCED}; acked rows "
    "stay and slow it down, they are removed outside the measured time",
)
WITHOUT_ACK = Entrant(
    "persist-queue",
    "peer",
    PersistQueue,
    acknowledges=False,
    durabilities=("full",),
    needs=("persistqueue",),
    distribution="persist-queue",
    remark=f"`SQLiteQueue`: no ack, no journal; {ALWAYS_SYNCED}",
)
