"""Is this queue faster than the others that keep messages on one machine?"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.durability import DURABILITIES, Durability
from benchmarks.peers import ours
from benchmarks.peers.contestant import Entrant
from benchmarks.peers.entrants import ENTRANTS, rival
from benchmarks.peers.process import ContestantProcess
from benchmarks.report import describe_machine
from benchmarks.standings import Cell, Line, Standings

AHEAD = 1.0
"""The target: a peer takes at least as long."""


def run(
    folder: Path,
    *,
    size: int = 100_000,
    calls: int = 100,
    rounds: int = 20,
    warm_up: int = 5,
    entrants: Sequence[Entrant] = ENTRANTS,
) -> Iterator[Standings]:
    """``put`` and get + ack one by one, on a short queue and on one with ``size`` waiting."""
    field = [entrant for entrant in entrants if not entrant.missing]
    short = Course(folder / "short", waiting=calls)
    long = Course(folder / "long", waiting=size)
    for durability in DURABILITIES:
        able = [entrant for entrant in field if durability in entrant.durabilities]
        laps = [course.race(able, durability, calls, rounds, warm_up) for course in (short, long)]
        yield Standings(
            "peers",
            "messages of 200 bytes one by one",
            f"durability {durability}",
            ["put", "get + ack", f"put, {size:,} waiting", f"get + ack, {size:,} waiting"],
            [_line(entrant, laps) for entrant in able],
            describe_machine(folder),
            _remarks(entrants, durability),
        )


class Lap(NamedTuple):
    """What one message took, in seconds."""

    put: float
    take: float


Laps = dict[str, list[Lap]]


class Course:
    """A queue of each entrant with so many messages waiting, each in a folder of its own."""

    def __init__(self, folder: Path, waiting: int) -> None:
        self._folder = folder
        self._waiting = waiting
        self._taken: dict[str, int] = {}

    def race(
        self,
        able: Sequence[Entrant],
        durability: Durability,
        calls: int,
        rounds: int,
        warm_up: int,
    ) -> Laps:
        """All are open at once and take turns, so that other work slows them down alike.

        Each puts some and takes as many, so that the queues stay as long as they are. The rounds
        to warm up are not counted: a sync costs more while a log still grows than when SQLite
        has begun to write over its beginning.
        """
        laps: Laps = {entrant.name: [] for entrant in able}
        with ExitStack() as stack:
            field = [stack.enter_context(self._opened(entrant, durability)) for entrant in able]
            for number in range(warm_up + rounds):
                turn = number % len(field)
                for contestant in field[turn:] + field[:turn]:
                    lap = self._lap(contestant, calls)
                    if number >= warm_up:
                        laps[contestant.entrant.name].append(lap)
        return laps

    def _opened(self, entrant: Entrant, durability: Durability) -> ContestantProcess:
        """It is filled the first time: with the least durability that it has, so it is fast."""
        contestant = ContestantProcess(entrant, self._folder / entrant.name, durability)
        if entrant.name not in self._taken:
            contestant.fill(self._waiting)
            self._taken[entrant.name] = 0
        return contestant

    def _lap(self, contestant: ContestantProcess, calls: int) -> Lap:
        taken = self._taken[contestant.entrant.name]
        put = contestant.put(taken + self._waiting, calls)
        take = contestant.take(taken, calls)
        self._taken[contestant.entrant.name] += calls
        return Lap(put / calls, take / calls)


def _line(entrant: Entrant, courses: Sequence[Laps]) -> Line:
    """Putting is compared with ours, taking with ours of the same promise."""
    cells: list[Cell | None] = []
    for laps in courses:
        mine = laps[entrant.name]
        putting, taking = laps[ours.LEASED.name], laps[rival(entrant).name]
        cells += [
            # There is one way to put, whatever is promised about delivery.
            None
            if entrant is ours.AT_MOST_ONCE
            else _cell(entrant, [lap.put for lap in mine], [lap.put for lap in putting]),
            _cell(entrant, [lap.take for lap in mine], [lap.take for lap in taking]),
        ]
    return Line(entrant.label, entrant.kind, cells, entrant.lacks)


def _cell(entrant: Entrant, theirs: Sequence[float], our_own: Sequence[float]) -> Cell:
    ratio = median(their / our for their, our in zip(theirs, our_own, strict=True))
    return Cell(median(theirs), ratio, AHEAD if entrant.kind == "peer" else None)


def _uv() -> str:
    """How to call uv here: ./set-up keeps one of its own where there was none."""
    own = sorted(Path(".tools").glob("uv-*"))
    return str(own[-1]) if own and not shutil.which("uv") else "uv"


def _remarks(entrants: Sequence[Entrant], durability: Durability) -> list[str]:
    """Who is not in the table, and why."""
    missing = {module for entrant in entrants for module in entrant.missing}
    unable = [
        entrant.name
        for entrant in entrants
        if not entrant.missing and durability not in entrant.durabilities
    ]
    remarks = []
    if missing:
        names = "; ".join(entrant.name for entrant in entrants if entrant.missing)
        remarks.append(
            f"Left out, because {', '.join(sorted(missing))} cannot be imported: {names}. "
            f"`{_uv()} sync --group benchmarks` installs what is needed."
        )
    if unable:
        remarks.append(f"Left out, because they cannot be {durability}: {'; '.join(unable)}.")
    return remarks
