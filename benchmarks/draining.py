"""A process that takes what was put, in one way or another, and says how long that took."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from benchmarks.child import Child
from benchmarks.durability import Durability
from benchmarks.timing import seconds
from benchmarks.values import job
from localqueue import PersistentQueue
from localqueue.policies.journal import JournalPolicy
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.workers import Worker

Way = Literal["one by one", "thread", "asyncio", "process"]
Queue = PersistentQueue[Any]


def nothing(value: Any) -> None:
    """The handler."""


async def nothing_async(value: Any) -> None:
    """The handler of the asyncio worker."""


class Drain(Child):
    """A queue in a file of its own, in a process of its own."""

    def __init__(
        self, path: Path, durability: Durability, journal: JournalPolicy | None = None
    ) -> None:
        super().__init__(_serve, path, durability, journal)

    def put(self, messages: int) -> None:
        self._ask(_put, messages)

    def all(self, way: Way, messages: int) -> float:
        """Put so many and take them all; the seconds of a message, the worker's start included."""
        return self._ask(_put_and_take, way, messages) / messages

    def some(self, messages: int) -> float:
        """Take so many with a worker and put them back; the seconds of a message."""
        return self._ask(_take_some, messages) / messages

    def _ask(self, work: Callable[..., float | None], *arguments: Any) -> float:
        self.pipe.send(partial(work, *arguments))
        answer: float = self.pipe.recv()
        return answer


def _serve(
    pipe: Connection[Any, Any], path: Path, durability: Durability, journal: JournalPolicy | None
) -> None:
    with SQLiteQueueStore(path, durability=durability) as store:
        queue: Queue = PersistentQueue("jobs", store=store, journal_policy=journal)
        try:
            while True:
                work = pipe.recv()
                pipe.send(work(queue=queue))
        except EOFError:
            return


def _put(messages: int, *, queue: Queue) -> None:
    queue.put_stream(job(number) for number in range(messages))


def _put_and_take(way: Way, messages: int, *, queue: Queue) -> float:
    _put(messages, queue=queue)
    if way == "one by one":
        taken: list[bool] = []
        spent = seconds(lambda: taken.extend(_take(queue) for _ in range(messages)))
        assert all(taken)
        return spent
    worker = Worker(queue, nothing_async if way == "asyncio" else nothing, kind=way)
    spent = seconds(lambda: worker.run(until_empty=True))
    assert worker.summary.done == messages
    return spent


def _take(queue: Queue) -> bool:
    return queue.ack(queue.get_message(block=False))


def _take_some(messages: int, *, queue: Queue) -> float:
    """From the first call of the handler to the last: what waits is more, and stays."""
    moments = []

    def count(_: Any) -> None:
        moments.append(perf_counter())
        if len(moments) == messages:
            worker.stop()

    worker = Worker(queue, count, kind="thread")
    worker.run()
    _put(len(moments), queue=queue)
    return moments[messages - 1] - moments[0]


def consume(pipe: Connection[Any, Any], path: Path, durability: Durability) -> None:
    """What runs in an idle worker's process: its handler says when it began."""
    with SQLiteQueueStore(path, durability=durability) as store:
        queue: Queue = PersistentQueue("jobs", store=store)
        worker = Worker(queue, lambda _: pipe.send(perf_counter()), kind="thread")
        with worker:
            pipe.send("ready")
            try:
                pipe.recv()
            except EOFError:
                return
