"""The queue and the raw table side by side: put some, take them, in turns."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.durability import Durability
from benchmarks.raw import RawTable
from benchmarks.report import Row
from benchmarks.timing import Spent, spent
from localqueue import PersistentQueue
from localqueue.stores.sqlite.store import SQLiteQueueStore


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: one step of putting, and one of taking."""

    put: Callable[[], object]
    take: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Round:
    """What the same steps took on both sides."""

    ours: Spent
    raw: Spent


def compare(
    folder: Path,
    durability: Durability,
    steps: int,
    rounds: int,
    ours: Callable[[PersistentQueue[Any]], Side],
    raw: Callable[[RawTable], Side],
) -> tuple[list[Round], list[Round]]:
    """Rounds of putting and rounds of taking, on new files.

    The sides alternate step by step, so that both are slowed down alike by whatever else the
    machine does. A round puts and then takes the same, so every round begins with an empty queue.
    """
    table = RawTable(folder / f"raw-{durability}.sqlite3", durability)
    store = SQLiteQueueStore(folder / f"queue-{durability}.sqlite3", durability=durability)
    queue: PersistentQueue[Any] = PersistentQueue("jobs", store=store)
    mine, other = ours(queue), raw(table)
    puts, takes = [], []
    try:
        for _ in range(rounds):
            gc.collect()
            puts.append(_round(mine.put, other.put, steps))
            takes.append(_round(mine.take, other.take, steps))
        assert queue.empty()
    finally:
        store.close()
        table.close()
    return puts, takes


def row(what: str, rounds: Sequence[Round], messages: int, at_least: float | None = None) -> Row:
    """How much of the raw speed is left: the median of the rounds, by the clock and by CPU time."""
    return Row(
        what,
        median(round.ours.wall for round in rounds) / messages,
        median(round.raw.wall for round in rounds) / messages,
        median(round.raw.wall / round.ours.wall for round in rounds),
        at_least,
        more={"by CPU time": median(round.raw.cpu / round.ours.cpu for round in rounds)},
    )


def _round(ours: Callable[[], object], raw: Callable[[], object], steps: int) -> Round:
    mine, other = [], []
    for _ in range(steps):
        mine.append(spent(ours))
        other.append(spent(raw))
    return Round(_total(mine), _total(other))


def _total(steps: Sequence[Spent]) -> Spent:
    return Spent(sum(step.wall for step in steps), sum(step.cpu for step in steps))
