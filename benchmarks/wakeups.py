"""How soon does a consumer in another process have a message, and what does waiting cost?"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty
from statistics import quantiles
from time import perf_counter as now
from time import process_time, sleep
from typing import Any

from benchmarks.child import Child
from benchmarks.durability import DURABILITIES, Durability
from benchmarks.report import Report, Row, describe_machine
from benchmarks.values import job
from localqueue import PersistentQueue
from localqueue.stores.sqlite.store import SQLiteQueueStore

USUAL, LONGEST = 0.001, 0.005
"""Seconds: what half of the messages and what 99 of 100 must stay under."""
MOST_CPU = 0.2
"""Percent of a core."""
PAUSE = 0.005
"""Seconds between two messages: long enough for the consumer to fall asleep."""


def run(folder: Path, *, messages: int = 1000, idle: float = 10.0) -> Iterator[Report]:
    """One message at a time into a queue where a consumer waits; a byte into a FIFO beside it."""
    rows = []
    for durability in DURABILITIES:
        told, raw, cpu = _measure(folder, durability, messages, idle)
        rows += [
            row(f"half of all, {durability}", told[49], raw[49], USUAL),
            row(f"99 of 100, {durability}", told[98], raw[98], LONGEST),
            Row(f"CPU of who waits, in percent, {durability}", None, None, cpu, at_most=MOST_CPU),
        ]
    yield Report(
        "wakeups",
        "put in one process until get returns in another, against a byte through a FIFO",
        "until get returns",
        "a byte",
        rows,
        describe_machine(folder),
    )


def row(what: str, told: float, raw: float, longest: float) -> Row:
    return Row(what, told, raw, told / raw, longest=longest)


def _measure(
    folder: Path, durability: Durability, messages: int, idle: float
) -> tuple[Sequence[float], Sequence[float], float]:
    """The hundredths of both, and the percentage of a core that waiting takes."""
    path, fifo = folder / f"{durability}.sqlite3", folder / f"{durability}.fifo"
    os.mkfifo(fifo)
    value = job(1)
    told, raw = [], []
    with ExitStack() as stack:
        consumer = stack.enter_context(Child(_consume, path, durability, messages, idle))
        reader = stack.enter_context(Child(read_fifo, fifo, messages))
        store = stack.enter_context(SQLiteQueueStore(path, durability=durability))
        queue: PersistentQueue[Any] = PersistentQueue("jobs", store=store)
        consumer.pipe.recv()  # it is ready
        reader.pipe.recv()
        end = os.open(fifo, os.O_WRONLY)
        stack.callback(os.close, end)
        for _ in range(messages):
            raw.append(until_heard(lambda: os.write(end, b"!"), reader))
            told.append(until_heard(lambda: queue.put(value), consumer))
        cpu = consumer.pipe.recv()
    return quantiles(told, n=100), quantiles(raw, n=100), cpu


def until_heard(tell: Callable[[], object], child: Child) -> float:
    """Seconds until the child says that it was woken; it has time to fall asleep before."""
    sleep(PAUSE)
    start = now()
    tell()
    heard: float = child.pipe.recv()
    return heard - start


def _consume(
    pipe: Connection[Any, Any], path: Path, durability: Durability, messages: int, idle: float
) -> None:
    """What runs in the consuming process: it says when it has a message, then waits in vain."""
    with SQLiteQueueStore(path, durability=durability) as store:
        queue: PersistentQueue[Any] = PersistentQueue("jobs", store=store)
        queue.stats()
        pipe.send("ready")
        for _ in range(messages):
            message = queue.get_message()
            pipe.send(now())
            queue.ack(message)
        used, start = process_time(), now()
        try:
            queue.get(timeout=idle)
        except Empty:
            pass
        pipe.send(100 * (process_time() - used) / (now() - start))


def read_fifo(pipe: Connection[Any, Any], fifo: Path, messages: int) -> None:
    """What runs in another process: the least that one can do to be woken."""
    end = os.open(fifo, os.O_RDWR)
    poll = select.poll()
    poll.register(end, select.POLLIN)
    pipe.send("ready")
    for _ in range(messages):
        poll.poll()
        os.read(end, 1)
        pipe.send(now())
    os.close(end)
