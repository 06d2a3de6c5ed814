"""SIGKILL at every write, sync, lock and deletion of an operation, before it and right after it.

Proven: the file is then as it was before the operation, or as it is after it, and never between; it
is the latter as soon as the operation was answered; and whoever opens it next goes on. What was
noted in the daybook counts as being in the file: the next process brings it there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.moments import Between, Moments, some
from tests.faults.nursery import Nursery
from tests.faults.operations import OPERATIONS, UNCHANGED
from tests.faults.soundness import Unsound

FEW = 5
"""Moments of one operation in the short form; the long form takes them all."""


def kill_at(moments: Moments, moment: int | None, defect: str | None = None) -> None:
    """Kill at this moment, or right after the answer, and look at what is there."""
    ended = moments.run("run", moment, defect, goes_on=defect is None)
    moments.check(ended, moment)
    if ended.answers and ended.found != moments.after:
        raise Between(f"{moments.name}, moment {moment}: answered, and not there")


def kill_at_all(moments: Moments, few: int | None, defect: str | None = None) -> int:
    """Kill at every moment that the operation has, or at a few of them; how many it has."""
    [entry] = moments.run("run", None, defect, goes_on=defect is None).answers
    for moment in some(entry.what[0], few):
        kill_at(moments, moment, defect)
    return int(entry.what[0])


@pytest.mark.parametrize("few", [FEW, pytest.param(None, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_kill_leaves_the_state_before_the_operation_or_the_one_after_it(
    nursery: Nursery, folder: Path, name: str, few: int | None
) -> None:
    moments = Moments(nursery, folder, name)

    count = kill_at_all(moments, few)

    assert count > 3, "there was something to be killed at"
    assert (moments.before == moments.after) == (name in UNCHANGED)


@pytest.mark.parametrize(
    "name",
    [
        *("put", "get", "ack", "release", "dead_letter", "migration"),
        *("posting", "close of the book", "posting for the killed"),
    ],
)
def test_an_operation_in_two_transactions_is_caught(
    nursery: Nursery, folder: Path, name: str
) -> None:
    moments = Moments(nursery, folder, name)

    with pytest.raises((Between, Unsound)):
        kill_at_all(moments, None, "CommitsInTheMiddle")


@pytest.mark.parametrize("name", ["put", "ack"])
def test_an_answer_before_the_commit_is_caught(nursery: Nursery, folder: Path, name: str) -> None:
    moments = Moments(nursery, folder, name)

    with pytest.raises(Between, match="answered, and not there"):
        kill_at(moments, None, "AnswersBeforeCommit")


@pytest.mark.parametrize("name", ["new book", "noted put", "noted get", "noted ack"])
def test_an_answer_before_the_entry_is_written_is_caught(
    nursery: Nursery, folder: Path, name: str
) -> None:
    moments = Moments(nursery, folder, name)

    with pytest.raises(Between, match="answered, and not there"):
        kill_at(moments, None, "AnswersBeforeItIsNoted")
