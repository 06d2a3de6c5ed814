"""A disk that fails when the -wal or the daybook is synced, followed by a power cut.

Proven: the calls whose commit was not confirmed are told that its outcome is unknown; whatever was
answered, before the fault or after it, in any process, is there after the cut.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.cuts import Lost, Recording, cut, record

CUTS = 6
"""For each of the ways in which the disk may have lost what it was given."""


def work(
    folder: Path,
    fails_at: int,
    *,
    of: str = "Python",
    end: str = "-wal",
    steps: int = 120,
    processes: int = 1,
    defect: str | None = None,
) -> Recording:
    # Only the first meets the fault itself; the others are told by their own descriptors.
    given = [
        [seed, steps, fails_at if seed == 1 else 0, of, end, defect]
        for seed in range(1, processes + 1)
    ]
    return record(folder, "recorded:work_on_a_failing_disk", given)


def cut_in_ways(recording: Recording, ways: int, since: int) -> None:
    for seed in range(ways):
        cut(recording, CUTS, answers_stand=True, seed=seed, since=since)


def long(*fails_at: int) -> list[pytest.ParameterSet]:
    return [pytest.param(at, marks=pytest.mark.long) for at in fails_at]


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("fails_at", [4, 20, *long(*range(30, 100, 3))])
def test_nothing_that_was_answered_is_lost_when_a_failed_sync_is_followed_by_a_power_cut(
    folder: Path, fails_at: int, processes: int
) -> None:
    # So many that there are syncs enough: of what is noted the -wal needs none.
    steps = max(120, 6 * fails_at)
    recording = work(folder, fails_at, steps=steps, processes=processes)
    assert recording.noted() > 10, "the daybook was used"
    failed = [text for _, text in recording.marks("failed")]
    since = recording.failed_at()

    cut_in_ways(recording, 3, since)

    assert any("outcome is unknown" in text for text in failed)
    assert len(failed) < 5 * processes, "it goes on after the fault"
    assert max(recording.answered())[0] > since


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("fails_at", [2, 20, *long(*range(3, 40, 3))])
def test_nothing_is_lost_when_it_was_the_daybook_whose_sync_failed(
    folder: Path, fails_at: int, processes: int
) -> None:
    recording = work(folder, fails_at, end="-daybook", processes=processes)
    assert recording.noted() > 10, "the daybook was used"
    failed = [text for _, text in recording.marks("failed")]
    since = recording.failed_at()

    cut_in_ways(recording, 3, since)

    assert any("outcome is unknown" in text for text in failed)
    assert len(failed) < 5 * processes, "it goes on after the fault"
    assert max(recording.answered())[0] > since


def test_nothing_is_lost_when_the_first_sync_of_a_new_daybook_failed(folder: Path) -> None:
    """Nothing stands in it yet: what was to be noted goes to the tables, and nobody is told."""
    recording = work(folder, 1, end="-daybook")

    cut_in_ways(recording, 3, recording.failed_at())

    assert list(recording.marks("failed")) == []


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("fails_at", [3, *long(2, 4, 5, 6, 7)])
def test_nothing_is_lost_when_it_was_sqlite_whose_sync_failed(
    folder: Path, fails_at: int, processes: int
) -> None:
    """It syncs the -wal when it begins anew and for a checkpoint, whose failures it passes over."""
    # So many that there is a checkpoint for each sync.
    steps = max(500, 300 * fails_at)
    recording = work(folder, fails_at, of="SQLite", steps=steps, processes=processes)
    since = recording.failed_at()

    cut_in_ways(recording, 3, since)

    assert list(recording.marks("failed"))
    assert max(recording.answered())[0] > since


@pytest.mark.parametrize("end", ["-wal", "-daybook"])
@pytest.mark.parametrize("defect", ["AnswersAllTheSame", "DoesNotRepair"])
def test_an_answer_after_a_failed_sync_that_was_passed_over_is_caught(
    folder: Path, defect: str, end: str
) -> None:
    recording = work(folder, 20, end=end, defect=defect)

    with pytest.raises(Lost):
        cut_in_ways(recording, 20, recording.failed_at())
