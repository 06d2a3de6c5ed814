"""Do producers that put at the same time share the wait for the disk?"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.report import Report, Row, describe_machine
from benchmarks.timing import seconds
from benchmarks.values import job
from localqueue import PersistentQueue
from localqueue.stores.sqlite.store import SQLiteQueueStore

THREADS, THREADS_TARGET = 16, 4.0
COROUTINES, COROUTINES_TARGET = 64, 10.0
VALUE = job(1)

Queue = PersistentQueue[Any]


def run(folder: Path, *, messages: int = 1600, rounds: int = 7) -> Iterator[Report]:
    """16 threads and 64 coroutines that put against one thread that does, durability full."""
    store = SQLiteQueueStore(folder / "threads.sqlite3", durability="full")
    queue: Queue = PersistentQueue("jobs", store=store)
    ways: dict[str, tuple[Callable[[Queue, int], float], float]] = {
        f"{THREADS} threads": (_threads, THREADS_TARGET),
        f"{COROUTINES} coroutines": (_coroutines, COROUTINES_TARGET),
    }
    alone: list[float] = []
    together: dict[str, list[float]] = {name: [] for name in ways}
    try:
        for _ in range(rounds):
            alone.append(_one(queue, messages) / messages)
            for name, (put_all, _) in ways.items():
                together[name].append(put_all(queue, messages) / messages)
            queue.purge()
    finally:
        queue.close()
        store.close()
    yield Report(
        "threads",
        "put by many producers of one process, durability full, as a multiple of one producer",
        "a message",
        "one producer",
        [_row(name, together[name], alone, target) for name, (_, target) in ways.items()],
        describe_machine(folder),
    )


def _row(name: str, times: list[float], alone: list[float], target: float) -> Row:
    ratio = median(single / time for single, time in zip(alone, times, strict=True))
    return Row(name, median(times), median(alone), ratio, at_least=target)


def _one(queue: Queue, messages: int) -> float:
    return seconds(lambda: [queue.put(VALUE) for _ in range(messages)])


def _threads(queue: Queue, messages: int) -> float:
    """From the moment when all of them have started until the last has ended."""
    start = threading.Barrier(THREADS + 1)

    def produce() -> None:
        start.wait()
        for _ in range(messages // THREADS):
            queue.put(VALUE)

    producers = [threading.Thread(target=produce) for _ in range(THREADS)]
    for producer in producers:
        producer.start()
    before = queue.qsize()
    start.wait()
    begun = perf_counter()
    for producer in producers:
        producer.join()
    taken = perf_counter() - begun
    assert queue.qsize() - before == messages // THREADS * THREADS
    return taken


def _coroutines(queue: Queue, messages: int) -> float:
    async def produce() -> None:
        for _ in range(messages // COROUTINES):
            await queue.aio.put(VALUE)

    async def all_of_them() -> float:
        loop = asyncio.get_running_loop()
        start = loop.time()
        await asyncio.gather(*(produce() for _ in range(COROUTINES)))
        return loop.time() - start

    return asyncio.run(all_of_them())
