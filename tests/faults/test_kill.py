"""Real SIGKILL of producers and consumers at random moments, many times.

Proven: what was answered before a kill is in the file after it. No acknowledged put is lost, no
acknowledged message comes back, no batch is stored in part, no lease begins before the one before
it has ended, and the counts that are kept are those of the rows.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.nursery import PATIENCE, Nursery
from tests.faults.oracle import read_oracle
from tests.faults.reckoning import Broken, Reckoning
from tests.faults.soundness import Unsound, check_file
from tests.faults.traffic import LEASE, Queue, open_queue

LONGEST_LIFE = 0.06
"""Half of them have come to their work before: short enough that the others die as they open it."""


class Killings:
    """Keeps some workers at work on a file, and kills one after the other."""

    def __init__(self, nursery: Nursery, folder: Path, *, seed: int, defect: str | None) -> None:
        self.path = folder / "queue.sqlite3"
        self.oracles: list[Path] = []
        self._nursery = nursery
        self._chance = random.Random(seed)
        self._defect = defect
        self._works: list[str] = []
        self._pids: list[int] = []

    def employ(self, *works: str) -> None:
        """Start them, and let them come to their work."""
        self._works = list(works)
        self._pids = [self._start(work) for work in works]
        for oracle in self.oracles:
            self._wait_for_work(oracle)

    def kill_some(self, times: int) -> None:
        for _ in range(times):
            time.sleep(self._chance.uniform(0, LONGEST_LIFE))
            place = self._chance.randrange(len(self._pids))
            self._kill(place)
            self._pids[place] = self._start(self._works[place])
            if self._chance.random() < 0.5:
                self._wait_for_work(self.oracles[-1])

    def _wait_for_work(self, oracle: Path) -> None:
        end = time.monotonic() + PATIENCE
        while not read_oracle(oracle):
            assert time.monotonic() < end, "it does not come to its work"
            time.sleep(0.002)

    def end(self) -> None:
        for place in range(len(self._pids)):
            self._kill(place)
        self._pids.clear()

    def reckon(self) -> Reckoning:
        entries = [entry for oracle in self.oracles for entry in read_oracle(oracle)]
        return Reckoning(entries, check_file(self.path))

    def _start(self, work: str) -> int:
        number = len(self.oracles)
        self.oracles.append(self.path.with_name(f"oracle-{number}"))
        oracle = str(self.oracles[-1])
        return self._nursery.start(f"traffic:{work}", str(self.path), oracle, number, self._defect)

    def _kill(self, place: int) -> None:
        assert self._nursery.kill(self._pids[place]) == -9, "it ended by itself"


def drain(queue: Queue) -> list[tuple[str, Any]]:
    """Take everything that is left, as the leases of the killed end; with the dead letters."""
    left: list[tuple[str, Any]] = []
    while (stats := queue.stats()).ready or stats.inflight:
        messages = queue.get_messages(1000, timeout=PATIENCE)
        assert all(queue.ack_many(messages))
        left += [(message.id, message.value) for message in messages]
    return left + [(letter.id, letter.value) for letter in queue.dead_letters()]


@pytest.mark.parametrize("kills", [25, pytest.param(1000, marks=pytest.mark.long)])
def test_whatever_is_killed_nothing_that_was_answered_is_lost_or_undone(
    folder: Path, kills: int
) -> None:
    with Nursery() as nursery:
        killings = Killings(nursery, folder, seed=kills, defect=None)
        killings.employ("produce", "consume", "produce", "consume")
        killings.kill_some(kills)
        killings.end()

    killings.reckon()
    queue = open_queue(str(killings.path))
    left = drain(queue)
    stats = queue.stats()
    queue.store.close()

    reckoning = killings.reckon()
    reckoning.check_leases(LEASE)
    reckoning.check_values(left)
    assert min(reckoning.answers[verb] for verb in ("put", "get", "ack")) > kills // 5
    contents = check_file(killings.path)
    assert (stats.total, stats.dead) == (len(contents.messages), len(contents.messages))


@pytest.mark.parametrize(
    ("defect", "works", "told"),
    [
        ("AnswersBeforeCommit", ["produce"], "was answered"),
        ("UndoesAcks", ["produce", "consume"], "was answered"),
        ("DropsEvents", ["produce", "consume"], "is missing|the table has"),
        ("EndsLeasesAtOnce", ["produce", "consume", "consume"], "held until later"),
    ],
)
def test_a_planted_defect_is_caught(folder: Path, defect: str, works: list[str], told: str) -> None:
    with Nursery() as nursery, pytest.raises((Broken, Unsound), match=told):
        _kill_until_it_is_seen(nursery, folder, defect, works)


def _kill_until_it_is_seen(nursery: Nursery, folder: Path, defect: str, works: list[str]) -> None:
    """Of few kills not every one comes at a bad moment."""
    for number in range(30):
        place = folder / str(number)
        place.mkdir()
        killings = Killings(nursery, place, seed=number, defect=defect)
        killings.employ(*works)
        killings.kill_some(5)
        killings.end()
        killings.reckon().check_leases(LEASE)
