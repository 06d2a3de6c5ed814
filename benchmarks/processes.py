"""Do processes share one file without errors, long waits or starving?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from benchmarks.child import Child
from benchmarks.durability import DURABILITIES, Durability
from benchmarks.report import Report, Row, describe_machine
from benchmarks.values import job
from localqueue import PersistentQueue
from localqueue.stores.sqlite.store import SQLiteQueueStore

PROCESSES = 8
LONGEST_CALL = 2.0
LEAST_SHARE = 0.5

T = TypeVar("T")


class Told(NamedTuple):
    """What one process saw."""

    messages: int
    slowest: float
    """Seconds of its longest call."""
    usual: float
    """Seconds of its median call."""
    errors: list[str]


def run(folder: Path, *, duration: float = 30.0, processes: int = PROCESSES) -> Iterator[Report]:
    """Processes that put, get and ack one by one, as fast as they can."""
    rows, errors = [], []
    for durability in DURABILITIES:
        told = _work_together(folder / f"{durability}.sqlite3", durability, duration, processes)
        rows += _rows(told, durability, duration)
        errors += [error for process in told for error in process.errors]
    yield Report(
        "processes",
        f"{processes} processes put, get and ack on one file for {duration:g} s",
        "slowest",
        "usual",
        rows,
        describe_machine(folder),
        [f"Errors: {text}" for text in sorted(set(errors))],
    )


def _rows(told: list[Told], durability: Durability, duration: float) -> list[Row]:
    slowest, usual = max(one.slowest for one in told), median(one.usual for one in told)
    fewest, mean = min(one.messages for one in told), fmean(one.messages for one in told)
    return [
        Row(f"errors, {durability}", None, None, sum(len(one.errors) for one in told), at_most=0.0),
        Row(f"a call, {durability}", slowest, usual, slowest / usual, longest=LONGEST_CALL),
        Row(
            f"a process, a message, {durability}",
            duration / max(fewest, 1),
            duration / max(mean, 1.0),
            fewest / max(mean, 1.0),
            at_least=LEAST_SHARE,
        ),
    ]


def _work_together(path: Path, durability: Durability, duration: float, count: int) -> list[Told]:
    with ExitStack() as stack:
        children = [
            stack.enter_context(Child(_work, path, durability, duration)) for _ in range(count)
        ]
        for child in children:
            child.pipe.recv()  # it is ready
        for child in children:
            child.pipe.send("go")
        return [child.pipe.recv() for child in children]


def _work(pipe: Connection[Any, Any], path: Path, durability: Durability, duration: float) -> None:
    """What runs in each of the processes. A call that fails is counted, and it goes on."""
    value = job(1)
    messages, calls, errors = 0, Calls(), []
    store = SQLiteQueueStore(path, durability=durability)
    queue: PersistentQueue[Any] = PersistentQueue("jobs", store=store)
    queue.stats()
    pipe.send("ready")
    pipe.recv()
    end = perf_counter() + duration
    # At least once: on a busy machine the time may be over before the first call.
    while not calls.times or perf_counter() < end:
        try:
            # Everybody puts before taking, so at every moment there is one for everybody.
            calls.timed(partial(queue.put, value))
            message = calls.timed(partial(queue.get_message, block=False))
            calls.timed(partial(queue.ack, message))
            messages += 1
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
    queue.close()
    store.close()
    pipe.send(Told(messages, max(calls.times), median(calls.times), errors))


class Calls:
    """How long each call took, also one that raised."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def timed(self, call: Callable[[], T]) -> T:
        start = perf_counter()
        try:
            return call()
        finally:
            self.times.append(perf_counter() - start)
