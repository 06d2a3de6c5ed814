"""Power cuts, simulated from recorded writes: unsynced ones are dropped, kept or torn at random.

Proven: with full durability nothing that was answered before the cut is lost; with relaxed
durability the file is never corrupt and holds what was there at some earlier moment, whole. For one
process, and for several with several threads each; for processes with and without full durability
on one file, those that have it lose nothing. All of them note in the daybook what can be noted.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Any

import pytest

from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite.daybook import entries
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.testing import ManualClock
from tests.faults.cuts import Lost, NoPrefix, Recording, cut, record
from tests.faults.recorded import seal_alone
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
    defect: str | None = None,
) -> Recording:
    return work_together(folder, [durability] * processes, threads, unsynced, defect)


def work_together(
    folder: Path,
    durabilities: list[str],
    threads: int = 1,
    unsynced: str | None = None,
    defect: str | None = None,
) -> Recording:
    """A process for each durability."""
    steps = STEPS // len(durabilities) // threads
    given = [
        [seed, steps, threads, durability, unsynced, defect]
        for seed, durability in enumerate(durabilities, 1)
    ]
    recording = record(folder, "recorded:work", given)
    assert recording.noted() > 10, "the daybook was used"
    return recording


@TIMES
@pytest.mark.parametrize(("processes", "threads"), [(1, 1), (1, 6), (3, 1), (2, 3)])
def test_what_was_answered_with_full_durability_survives_a_power_cut(
    folder: Path, times: int, processes: int, threads: int
) -> None:
    recording = work(folder, processes=processes, threads=threads)

    cut(recording, times, answers_stand=True)

    assert len(recording.contents.events) > STEPS


@TIMES
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "durabilities", [["full", "relaxed"], ["relaxed", "full", "relaxed"]], ids="-".join
)
def test_what_was_answered_with_full_durability_survives_what_a_relaxed_process_does_to_the_file(
    folder: Path, times: int, durabilities: list[str], threads: int
) -> None:
    recording = work_together(folder, durabilities, threads)

    cut(recording, times, answers_stand=True, durability="full")


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
@pytest.mark.parametrize(("processes", "threads"), [(1, 1), (2, 3)])
def test_relaxed_durability_keeps_a_whole_beginning_of_what_happened(
    folder: Path, times: int, processes: int, threads: int
) -> None:
    recording = work(folder, durability="relaxed", processes=processes, threads=threads)

    cut(recording, times, answers_stand=False)


def test_relaxed_durability_may_lose_answers_so_that_the_cuts_do_cut(folder: Path) -> None:
    recording = work(folder, durability="relaxed")

    with pytest.raises(Lost):
        cut(recording, MANY, answers_stand=True)


@pytest.mark.parametrize(
    ("unsynced", "seen"),
    [
        ("-wal", Lost),
        ("-daybook", Lost),
        (".sqlite3", (Unsound, NoPrefix, Lost)),
        ("folder", Lost),
    ],
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


def test_a_book_that_is_written_over_before_the_tables_last_is_caught(folder: Path) -> None:
    recording = work(folder, defect="OverwritesTooSoon")

    with pytest.raises(Lost):
        cut(recording, MANY, answers_stand=True)


def test_a_relaxed_process_that_writes_over_what_had_to_last_is_caught(folder: Path) -> None:
    recording = work_together(folder, ["full", "relaxed"], defect="KnowsOnlyItsOwn")

    with pytest.raises(Lost):
        cut(recording, MANY, answers_stand=True, durability="full")


SHORT, LONG = 1, 40
"""Entries of which a sector has several, and such that take more than one."""


def work_evenly(folder: Path, length: int, defect: str | None = None) -> Recording:
    recording = record(folder, "recorded:work_evenly", [[6, length, defect]])
    assert recording.noted() > 250, "the daybook was used"
    return recording


@TIMES
@pytest.mark.parametrize("length", [SHORT, LONG])
def test_what_is_left_of_an_older_generation_of_the_book_is_not_taken_for_the_present_one(
    folder: Path, times: int, length: int
) -> None:
    recording = work_evenly(folder, length)

    cut(recording, times, answers_stand=False)


class _AnySum:
    """A checksum that is always right."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def test_a_torn_entry_that_is_taken_for_a_whole_one_is_caught(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = work_evenly(folder, LONG)
    monkeypatch.setattr(entries, "crc32", lambda *_: _AnySum())

    with pytest.raises((Unsound, NoPrefix)):
        cut(recording, MANY, answers_stand=False)


class _AnyEvent(int):
    """The first event of an entry, for one who does not ask what it follows."""

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


class _AnyHead:
    """The head of an entry, as that one reads it."""

    def __init__(self, head: Struct) -> None:
        self._head = head
        self.size = head.size

    def unpack_from(self, data: bytes, place: int) -> tuple[Any, ...]:
        length, seq, *rest = self._head.unpack_from(data, place)
        return length, _AnyEvent(seq), *rest


def test_an_entry_that_follows_none_and_counts_all_the_same_is_caught(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so twice: in its first event, and in its checksum."""
    recording = work_evenly(folder, SHORT, "SealsEachAlone")
    monkeypatch.setattr(entries, "crc32", seal_alone)
    monkeypatch.setattr(entries, "_HEAD", _AnyHead(entries._HEAD))

    with pytest.raises((Unsound, NoPrefix)):
        cut(recording, MANY, answers_stand=False)
