"""A wall clock that is set by an hour, forth and back, while leases run; and a new boot.

Proven, with real time in several processes: no lease ends before its time and none is held longer,
whatever the wall clock says. After a boot the leases of the boot before are over at once, delays go
on, and who opens the file later ends no lease of this boot.
"""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from localqueue.message import Receipt
from tests.faults.clocks import CLOCKS, LEASE, SharedClock, open_queue
from tests.faults.nursery import Nursery
from tests.faults.oracle import read_oracle

HOUR = 3600.0
MESSAGES = 4
PATIENCE = 20.0
"""How late a lease may be seen to end on a machine that has other things to do."""
FORTH = [hours * HOUR for step in range(10_000) for hours in (step, step - 1)]
BACK = [-step * HOUR for step in range(20_000)]

Lease = tuple[int, float, float]
"""Its token, and when the call that took it began and was answered, in real seconds."""


class WrongTime(AssertionError):
    """A lease was shorter or longer than it was given for."""


class Leases:
    """Three processes that lease the same messages over and over while the wall clock is set."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._path = folder / "queue.sqlite3"
        self._clock_file = str(folder / "clock")
        self._clock = CLOCKS[kind](self._clock_file)
        self._clock.set()
        self._kind = kind
        self._oracles = [folder / f"oracle-{number}" for number in range(3)]
        queue = open_queue(self._path, self._clock)
        queue.put_many(range(MESSAGES))
        queue.store.close()

    def take(self, walls: list[float], times: int, patience: float) -> list[list[Lease]]:
        """The leases of each message, at least so many of each if they come in time."""
        end = time.monotonic() + patience
        with Nursery() as nursery:
            pids = [self._start(nursery, oracle) for oracle in self._oracles]
            steps = iter(walls)
            while min(map(len, self._taken())) < times and time.monotonic() < end:
                self._clock.set(wall=next(steps))
                time.sleep(0.05)
            for pid in pids:
                assert nursery.kill(pid) == -9
        return self._taken()

    def _start(self, nursery: Nursery, oracle: Path) -> int:
        given = (str(self._path), str(oracle), self._clock_file, self._kind)
        return nursery.start("clocks:keep_taking", *given)

    def _taken(self) -> list[list[Lease]]:
        leases: list[list[Lease]] = [[] for _ in range(MESSAGES)]
        for oracle in self._oracles:
            for entry in read_oracle(oracle):
                number, token, began, answered = entry.what
                leases[number].append((token, began, answered))
        return [sorted(of_one) for of_one in leases]


def check_leases(leases: list[list[Lease]], times: int) -> None:
    for number, of_one in enumerate(leases):
        for (_, began, _), (_, _, answered) in pairwise(of_one):
            if answered < began + LEASE:
                raise WrongTime(f"message {number} was leased again after {answered - began:.3f} s")
        if len(of_one) < times:
            raise WrongTime(f"message {number} was leased {len(of_one)} times: held for ever")


@pytest.mark.parametrize("walls", [FORTH, BACK], ids=["forth", "back"])
@pytest.mark.parametrize("times", [3, pytest.param(60, marks=pytest.mark.long)])
def test_a_wall_clock_that_is_set_while_leases_run_neither_ends_nor_prolongs_them(
    folder: Path, walls: list[float], times: int
) -> None:
    leases = Leases(folder, SharedClock.__name__).take(walls, times, PATIENCE + times)

    check_leases(leases, times)


@pytest.mark.parametrize(
    ("walls", "told"),
    [(FORTH, "leased again after"), (BACK, "held for ever")],
    ids=["forth", "back"],
)
def test_a_store_that_lives_by_the_wall_clock_is_caught(
    folder: Path, walls: list[float], told: str
) -> None:
    leases = Leases(folder, "WallClockOnly").take(walls, 5, patience=3.0)

    with pytest.raises(WrongTime, match=told):
        check_leases(leases, 5)


class AfterBoot(NamedTuple):
    """What processes of the new boot find: values with their attempts and crashes."""

    first: list[Any]
    second: list[Any]
    old_receipt_holds: bool


def boot(folder: Path, kind: str) -> AfterBoot:
    """Hold a message when the host goes down, and start it again."""
    path, clock_file = str(folder / "queue.sqlite3"), str(folder / "clock")
    clock = CLOCKS[kind](clock_file)
    clock.set()
    queue = open_queue(path, clock)
    queue.put("held")
    queue.put("ready")
    queue.put("later", delay=HOUR)
    queue.store.close()
    held, first, second = (folder / name for name in ("held", "first", "second"))
    with Nursery() as nursery:
        assert nursery.run("clocks:take_and_die", path, str(held), clock_file, kind) == 0
        # The battery was empty as well: the wall clock begins in the past.
        clock.set(wall=-24 * HOUR, boot="boot-2", since=time.monotonic() - 10)
        for found in (first, second):
            assert nursery.run("clocks:take_all", path, str(found), clock_file, kind) == 0
    [(id, token)] = [entry.what for entry in read_oracle(held)]
    queue = open_queue(path, clock)
    [holds] = queue.store.ack_many([Receipt("jobs", id, token)], now=0.0)
    queue.store.close()
    return AfterBoot(
        [entry.what for entry in read_oracle(first)],
        [entry.what for entry in read_oracle(second)],
        holds,
    )


def test_a_new_boot_ends_the_leases_of_the_one_before_and_nothing_else(folder: Path) -> None:
    after = boot(folder, SharedClock.__name__)

    assert sorted(after.first) == [["held", 2, 0], ["ready", 1, 0]]
    assert after.second == [], "the leases of this boot stand"
    assert not after.old_receipt_holds


def test_a_store_that_does_not_see_a_new_boot_is_caught(folder: Path) -> None:
    after = boot(folder, "KnowsNoBoots")

    assert ["held", 2, 0] not in after.first, "the lease of a process that is gone is held"
    assert after.old_receipt_holds
