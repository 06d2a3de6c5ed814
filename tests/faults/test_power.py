"""Power cuts, simulated from recorded writes: unsynced ones are dropped, kept or torn at random.

Proven: with full durability nothing that was answered before the cut is lost; with relaxed
durability the file is never corrupt and holds what was there at some earlier moment, whole. For one
process, and for several with several threads each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.testing import ManualClock
from tests.faults.cuts import Lost, NoPrefix, Recording, cut, record
from tests.faults.soundness import Unsound

FEW, MANY = 14, 200
STEPS = 420
"""Of all workers together: enough for the -wal to begin anew a few times."""
TIMES = pytest.mark.parametrize("times", [FEW, pytest.param(MANY, marks=pytest.mark.long)])


def work(
    folder: Path,
    *,
    durability: str = "full",
    processes: int = 1,
    threads: int = 1,
    unsynced: str | None = None,
) -> Recording:
    steps = STEPS // processes // threads
    given = [[seed, steps, threads, durability, unsynced] for seed in range(1, processes + 1)]
    return record(folder, "recorded:work", given)


@TIMES
@pytest.mark.parametrize(("processes", "threads"), [(1, 1), (2, 3)])
def test_what_was_answered_with_full_durability_survives_a_power_cut(
    folder: Path, times: int, processes: int, threads: int
) -> None:
    recording = work(folder, processes=processes, threads=threads)

    cut(recording, times, answers_stand=True)

    assert len(recording.contents.events) > STEPS


@TIMES
@pytest.mark.parametrize("durability", ["full", "relaxed"])
def test_no_receipt_of_before_the_cut_holds_after_it(
    folder: Path, times: int, durability: str
) -> None:
    """Whoever has one may be on another host, and knows nothing of the cut."""
    recording = work(folder, durability=durability)

    def look(path: Path, moment: int) -> None:
        given = {
            pair for place, pairs in recording.marks("get") for pair in pairs if place <= moment
        }
        with SQLiteQueueStore(path) as store:
            queue: PersistentQueue[Any] = PersistentQueue(
                "jobs", store=store, clock=ManualClock(boot="after the cut")
            )
            taken = queue.get_messages(1000, block=False) if queue.qsize() else []
            assert given & {(message.id, message.token) for message in taken} == set()

    cut(recording, times, answers_stand=False, look=look)


@TIMES
def test_relaxed_durability_keeps_a_whole_beginning_of_what_happened(
    folder: Path, times: int
) -> None:
    recording = work(folder, durability="relaxed")

    cut(recording, times, answers_stand=False)


def test_relaxed_durability_may_lose_answers_so_that_the_cuts_do_cut(folder: Path) -> None:
    recording = work(folder, durability="relaxed")

    with pytest.raises(Lost):
        cut(recording, MANY, answers_stand=True)


@pytest.mark.parametrize(
    ("unsynced", "seen"),
    [("-wal", Lost), (".sqlite3", (Unsound, NoPrefix, Lost)), ("folder", Lost)],
)
def test_a_sync_that_is_left_out_is_caught(
    folder: Path, unsynced: str, seen: type[AssertionError]
) -> None:
    recording = work(folder, unsynced=unsynced)

    with pytest.raises(seen):
        cut(recording, MANY, answers_stand=True)


def test_a_checkpoint_without_a_sync_is_caught_with_relaxed_durability(folder: Path) -> None:
    recording = work(folder, durability="relaxed", unsynced=".sqlite3")

    with pytest.raises((Unsound, NoPrefix)):
        cut(recording, MANY, answers_stand=False)
