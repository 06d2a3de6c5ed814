"""Real SIGKILL of producers and consumers at random moments, many times.

Proven: what was answered before a kill is in the file after it. No acknowledged put is lost, no
acknowledged message comes back, no batch is stored in part, no lease begins before the one before
it has ended, and the counts that are kept are those of the rows. Puts into a queue without bounds
are noted in the daybook; leases and acks are in both.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.faults.nursery import PATIENCE, Nursery
from tests.faults.oracle import Entry, read_oracle
from tests.faults.reckoning import Broken, Reckoning
from tests.faults.soundness import Unsound, check_file
from tests.faults.traffic import LEASE, Queue, open_queue

LONGEST_LIFE = 0.06
"""Half of them have come to their work before: short enough that the others die as they open it."""


class Killings:
    """Keeps some workers at work on a file, and kills one after the other."""

    def __init__(
        self, nursery: Nursery, folder: Path, *, seed: int, bounded: bool, defect: str | None
    ) -> None:
        self.path = folder / "queue.sqlite3"
        self.oracles: list[Path] = []
        self._nursery = nursery
        self._chance = random.Random(seed)
        self._bounded = bounded
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
        with SQLiteQueueStore(self.path) as store:
            # Posts what they have left in the daybook.
            store.queues()
        return Reckoning(self.told(), check_file(self.path))

    def told(self) -> list[Entry]:
        return [entry for oracle in self.oracles for entry in read_oracle(oracle)]

    def _start(self, work: str) -> int:
        number = len(self.oracles)
        self.oracles.append(self.path.with_name(f"oracle-{number}"))
        oracle = str(self.oracles[-1])
        return self._nursery.start(
            f"traffic:{work}", str(self.path), oracle, number, self._bounded, self._defect
        )

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
@pytest.mark.parametrize("bounded", [True, False])
def test_whatever_is_killed_nothing_that_was_answered_is_lost_or_undone(
    folder: Path, kills: int, bounded: bool
) -> None:
    with Nursery() as nursery:
        killings = Killings(nursery, folder, seed=kills, bounded=bounded, defect=None)
        killings.employ("produce", "consume", "produce", "consume")
        killings.kill_some(kills)
        killings.end()

    killings.reckon()
    queue = open_queue(str(killings.path), bounded=bounded)
    left = drain(queue)
    stats = queue.stats()
    queue.store.close()

    reckoning = killings.reckon()
    reckoning.check_leases(LEASE)
    reckoning.check_values(left)
    assert min(reckoning.answers[verb] for verb in ("put", "get", "ack")) > kills // 5
    notes = [entry for entry in killings.told() if entry.verb == "note"]
    assert len(notes) > kills, "the daybook was used"
    contents = check_file(killings.path)
    assert (stats.total, stats.dead) == (len(contents.messages), len(contents.messages))


@pytest.mark.parametrize(
    ("defect", "works", "bounded", "told"),
    [
        ("AnswersBeforeCommit", ["produce"], True, "was answered"),
        ("AnswersBeforeItIsNoted", ["produce"], False, "was answered"),
        # What is written too late may also stand where others have gone on since.
        (
            "AnswersBeforeItIsNoted",
            ["produce", "consume"],
            False,
            "was answered|does not follow|follows an event|is missing|the table has",
        ),
        ("UndoesAcks", ["produce", "consume"], True, "was answered"),
        ("DropsEvents", ["produce", "consume"], True, "is missing|the table has"),
        ("EndsLeasesAtOnce", ["produce", "consume", "consume"], True, "held until later"),
    ],
)
def test_a_planted_defect_is_caught(
    folder: Path, defect: str, works: list[str], bounded: bool, told: str
) -> None:
    with Nursery() as nursery, pytest.raises((Broken, Unsound), match=told):
        _kill_until_it_is_seen(nursery, folder, defect, works, bounded)


def _kill_until_it_is_seen(
    nursery: Nursery, folder: Path, defect: str, works: list[str], bounded: bool
) -> None:
    """Of few kills not every one comes at a bad moment."""
    for number in range(30):
        place = folder / str(number)
        place.mkdir()
        killings = Killings(nursery, place, seed=number, bounded=bounded, defect=defect)
        killings.employ(*works)
        killings.kill_some(5)
        killings.end()
        killings.reckon().check_leases(LEASE)
