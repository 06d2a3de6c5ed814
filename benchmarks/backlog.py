"""Does a call cost more when many messages wait?

Each call is measured on a queue with few and on one with many messages waiting, alternately, so
that whatever else the machine does hits both. Durability is relaxed: a sync would hide the
difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import NamedTuple

from benchmarks.backlog_calls import CALLS, CALLS_BESIDE, CALLS_OF_A_KEY, GLANCES, Call
from benchmarks.backlog_queues import (
    Backlog,
    beside_another,
    delayed_in_front,
    due_since_a_moment,
    held_in_front,
    nothing_in_front,
)
from benchmarks.report import Report, Row, describe_machine
from benchmarks.timing import Spent, spent

FEW = 1000
AT_MOST = 1.3
LONGEST_LOOK = 0.001
LOOKS = ("stats", "qsize", "empty", "full")
PATIENCE = 5.0
"""Seconds after which a round of a call ends, however few times it was measured."""


class Scenario(NamedTuple):
    """Where the messages wait, and which calls are made there."""

    words: str
    fill: Callable[[Path, int], Backlog]
    calls: tuple[Call, ...]
    has_target: bool = True


SCENARIOS = (
    Scenario("in a queue", nothing_in_front, CALLS),
    Scenario("in a queue, a tenth more delayed in front", delayed_in_front, CALLS),
    Scenario("in a queue, a tenth more held in front", held_in_front, CALLS + CALLS_OF_A_KEY),
    Scenario("in another queue of the same file", beside_another, CALLS + CALLS_BESIDE),
    # Until the next lease: looking changes nothing, so it must count what time has brought about.
    Scenario("in a queue, a tenth more just due", due_since_a_moment, GLANCES, has_target=False),
)


def run(
    folder: Path, *, size: int = 1_000_000, few: int = FEW, times: int = 200, rounds: int = 3
) -> Iterator[Report]:
    """Every call with ``few`` and with ``size`` waiting; a report for each place they wait in."""
    for scenario in SCENARIOS:
        small = scenario.fill(folder / "few.sqlite3", few)
        large = scenario.fill(folder / "many.sqlite3", size)
        try:
            rows = [
                _compare(call, small, large, times, rounds, scenario.has_target)
                for call in scenario.calls
            ]
        finally:
            small.remove()
            large.remove()
        yield Report(
            "backlog",
            f"{size:,} messages waiting {scenario.words}, against {few:,}",
            f"{size:,}",
            f"{few:,}",
            rows,
            describe_machine(folder),
        )


def _compare(
    call: Call, small: Backlog, large: Backlog, times: int, rounds: int, has_target: bool
) -> Row:
    few, many = _Side(), _Side()
    for _ in range(rounds):
        few.rounds.append([])
        many.rounds.append([])
        end = perf_counter() + PATIENCE
        for _ in range(times):
            few.rounds[-1].append(_measure(call, small))
            many.rounds[-1].append(_measure(call, large))
            if perf_counter() > end:
                break
    return Row(
        call.name,
        many.wall(),
        few.wall(),
        many.wall() / few.wall(),
        at_most=AT_MOST if has_target else None,
        longest=LONGEST_LOOK if has_target and call.name in LOOKS else None,
        more={"by CPU time": many.cpu() / few.cpu()},
    )


class _Side:
    """What one of the two queues took, of several rounds the best."""

    def __init__(self) -> None:
        self.rounds: list[list[Spent]] = []

    def wall(self) -> float:
        """The median call."""
        return min(median(call.wall for call in calls) for calls in self.rounds)

    def cpu(self) -> float:
        """The mean: it also has the few calls that fold, trim or checkpoint for all the others."""
        return min(fmean(call.cpu for call in calls) for calls in self.rounds)


def _measure(call: Call, backlog: Backlog) -> Spent:
    """One call. What it needs is made before, what it leaves is put right after."""
    given = call.prepare(backlog)
    answers: list[object] = []
    taken = spent(lambda: answers.append(call.run(backlog, given)))
    call.restore(backlog, answers[0])
    return taken
