"""The queue and the raw table side by side: put some, take them, in turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.raw import RawTable
from benchmarks.report import Row
from benchmarks.timing import Spent, in_turns, spent
from localqueue import PersistentQueue
from localqueue.stores.sqlite.store import SQLiteQueueStore

Durability = Literal["relaxed", "full"]
DURABILITIES: tuple[Durability, ...] = ("relaxed", "full")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: how it puts and how it takes what one round is made of."""

    put: Callable[[], object]
    take: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Best:
    """The least that a round of one side took."""

    put: Spent
    take: Spent


def compare(
    folder: Path,
    durability: Durability,
    rounds: int,
    ours: Callable[[PersistentQueue[Any]], Side],
    raw: Callable[[RawTable], Side],
) -> tuple[Best, Best]:
    """The best rounds of the queue and of the raw table, on new files.

    A round puts and then takes the same, so every round begins with an empty queue.
    """
    table = RawTable(folder / f"raw-{durability}.sqlite3", durability)
    store = SQLiteQueueStore(folder / f"queue-{durability}.sqlite3", durability=durability)
    queue: PersistentQueue[Any] = PersistentQueue("jobs", store=store)
    try:
        times = [_Times(ours(queue)), _Times(raw(table))]
        in_turns([side.round for side in times], rounds)
        assert queue.empty()
    finally:
        store.close()
        table.close()
    return times[0].best(), times[1].best()


def row(what: str, ours: Spent, raw: Spent, messages: int, at_least: float | None = None) -> Row:
    """How much of the raw speed is left, with the share of CPU time beside it."""
    return Row(
        what,
        ours.wall / messages,
        raw.wall / messages,
        raw.wall / ours.wall,
        at_least,
        more={"by CPU time": raw.cpu / ours.cpu},
    )


class _Times:
    def __init__(self, side: Side) -> None:
        self._side = side
        self._put: list[Spent] = []
        self._take: list[Spent] = []

    def round(self) -> None:
        self._put.append(spent(self._side.put))
        self._take.append(spent(self._side.take))

    def best(self) -> Best:
        return Best(_least(self._put), _least(self._take))


def _least(rounds: list[Spent]) -> Spent:
    return Spent(min(round.wall for round in rounds), min(round.cpu for round in rounds))
