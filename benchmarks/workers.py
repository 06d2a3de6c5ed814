"""What does a worker make of the store's speed, and how soon does an idle one begin?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.child import Child
from benchmarks.draining import Drain, Way, consume
from benchmarks.durability import DURABILITIES, Durability
from benchmarks.report import Report, Row, describe_machine
from benchmarks.values import job
from benchmarks.wakeups import LONGEST, USUAL, read_fifo, row, until_heard
from localqueue import Journal, PersistentQueue
from localqueue.stores.sqlite.store import SQLiteQueueStore

WORKERS: tuple[Way, ...] = ("thread", "asyncio", "process")
GAIN: dict[Durability, float] = {"relaxed": 4.0, "full": 10.0}
"""A worker against one message per transaction."""
FULL_OF_RELAXED = 0.6
ASYNCIO_OF_THREAD = 0.7
FEW = 1000
MANY_OF_FEW = 0.8
FEWER = 10
"""One by one takes so much longer that a part of the messages has to do."""

Times = dict[tuple[Way, Durability], list[float]]


def run(
    folder: Path,
    *,
    messages: int = 50_000,
    waiting: int = 1_000_000,
    wakes: int = 1000,
    rounds: int = 3,
) -> Iterator[Report]:
    """A worker and a handler that does nothing: alone, before a backlog, and idle."""
    times = _drain(folder, messages, rounds)
    yield Report(
        "workers",
        f"draining {messages:,} messages with one worker, as a multiple of get_message + ack",
        "a message",
        "one by one",
        _gains(times),
        describe_machine(folder),
    )
    yield Report(
        "workers",
        "rates of workers against each other",
        "a message",
        "of the other",
        [*_shares(times), *_with_many(folder, messages // 5, waiting, 3 * rounds)],
        describe_machine(folder),
    )
    rows = []
    for durability in DURABILITIES:
        told, raw = _wake(folder, durability, wakes)
        rows += [
            row(f"half of all, {durability}", told[49], raw[49], USUAL),
            row(f"99 of 100, {durability}", told[98], raw[98], LONGEST),
        ]
    yield Report(
        "workers",
        "put in one process until the handler begins in another, against a byte through a FIFO",
        "until it begins",
        "a byte",
        rows,
        describe_machine(folder),
    )


def _drain(folder: Path, messages: int, rounds: int) -> Times:
    """Seconds of a message; in every round each way once, one after the other."""
    ways: tuple[Way, ...] = ("one by one", *WORKERS)
    times: Times = {(way, durability): [] for way in ways for durability in DURABILITIES}
    with ExitStack() as stack:
        drains = {
            durability: stack.enter_context(Drain(folder / f"{durability}.sqlite3", durability))
            for durability in DURABILITIES
        }
        for _ in range(rounds):
            for (way, durability), taken in times.items():
                some = messages // FEWER if way == "one by one" else messages
                taken.append(drains[durability].all(way, some))
    return times


def _gains(times: Times) -> list[Row]:
    return [
        _share(
            f"{way} worker, {durability}",
            times[way, durability],
            times["one by one", durability],
            at_least=GAIN[durability] if way == "thread" else None,
        )
        for durability in DURABILITIES
        for way in WORKERS
    ]


def _shares(times: Times) -> list[Row]:
    """``measured`` is what the target speaks of; the ratio is that of the rates."""
    synced = _share(
        "thread worker, full against relaxed",
        times["thread", "full"],
        times["thread", "relaxed"],
        at_least=FULL_OF_RELAXED,
    )
    return [
        synced,
        *(
            _share(
                f"asyncio against thread worker, {durability}",
                times["asyncio", durability],
                times["thread", durability],
                at_least=ASYNCIO_OF_THREAD,
            )
            for durability in DURABILITIES
        ),
    ]


def _share(
    what: str, times: Sequence[float], others: Sequence[float], at_least: float | None
) -> Row:
    ratio = median(other / time for time, other in zip(times, others, strict=True))
    return Row(what, median(times), median(others), ratio, at_least=at_least)


def _with_many(folder: Path, messages: int, waiting: int, rounds: int) -> Iterator[Row]:
    """What stays waiting while a worker takes some: many, or few.

    A journal that is full lets go of an event for each new one, whatever waits. By default that is
    so from a million events on, which only the long queue has had; so both get a short one too.
    """
    what = f"thread worker with {waiting:,} waiting against {FEW:,}, relaxed"
    few, many = _before_backlogs(folder / "full", messages, waiting, rounds, Journal(max_rows=FEW))
    yield _share(f"{what}, both journals full", many, few, at_least=MANY_OF_FEW)
    few, many = _before_backlogs(folder / "default", messages, waiting, rounds, None)
    yield _share(f"{what}, default journals", many, few, at_least=MANY_OF_FEW)


def _before_backlogs(
    folder: Path, messages: int, waiting: int, rounds: int, journal: Journal | None
) -> tuple[list[float], list[float]]:
    folder.mkdir()
    with (
        Drain(folder / "few.sqlite3", "relaxed", journal) as before_few,
        Drain(folder / "many.sqlite3", "relaxed", journal) as before_many,
    ):
        before_few.put(FEW + messages)
        before_many.put(waiting + messages)
        few, many = [], []
        for _ in range(rounds):
            few.append(before_few.some(messages))
            many.append(before_many.some(messages))
    return few, many


def _wake(
    folder: Path, durability: Durability, wakes: int
) -> tuple[Sequence[float], Sequence[float]]:
    """The hundredths of both."""
    path, fifo = folder / f"wake-{durability}.sqlite3", folder / f"wake-{durability}.fifo"
    os.mkfifo(fifo)
    value = job(1)
    told, raw = [], []
    with ExitStack() as stack:
        worker = stack.enter_context(Child(consume, path, durability))
        reader = stack.enter_context(Child(read_fifo, fifo, wakes))
        store = stack.enter_context(SQLiteQueueStore(path, durability=durability))
        queue: PersistentQueue[Any] = PersistentQueue("jobs", store=store)
        worker.pipe.recv()  # it is ready
        reader.pipe.recv()
        end = os.open(fifo, os.O_WRONLY)
        stack.callback(os.close, end)
        for _ in range(wakes):
            raw.append(until_heard(lambda: os.write(end, b"!"), reader))
            told.append(until_heard(lambda: queue.put(value), worker))
    return quantiles(told, n=100), quantiles(raw, n=100)
