"""A process that forks with the queue open, and is killed.

Proven: a lock that a killed parent held is free, though its child lives and had a copy of every
descriptor; children go on with the queue when their parent is killed in the middle of its work; and
what the parent had noted before it forked is there.
(What parent and child do with the queue otherwise is in ``tests/unit/stores/test_fork.py``.)
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from localqueue.errors import StoreBusy
from tests.faults.forks import NOTED, open_queue
from tests.faults.nursery import Child
from tests.faults.soundness import check_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "queue.sqlite3"
    queue = open_queue(str(path))
    queue.put("before")
    queue.store.close()
    return path


@contextmanager
def orphan(path: Path, defect: str | None = None) -> Iterator[None]:
    """A child lives whose parent was killed while it held the lock."""
    with Child("forks:fork_in_transaction", str(path), defect) as parent:
        child = parent.hear()
        try:
            parent.kill()
            yield
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_lock_does_not_outlive_its_killed_owner_in_a_child(path: Path) -> None:
    with orphan(path):
        queue = open_queue(str(path))
        queue.put("after")
        values = [message.value for message in queue.peek(1000)]
        queue.store.close()

    check_file(path)
    assert values == ["before", *(["parent", step] for step in range(NOTED)), "after"]


def test_a_lock_that_a_child_inherits_is_caught(path: Path) -> None:
    with orphan(path, "KnowsNoForks"):
        queue = open_queue(str(path))
        with pytest.raises(StoreBusy):
            queue.put("after")


def test_children_go_on_when_their_parent_is_killed(path: Path) -> None:
    with Child("forks:fork_and_work", str(path), 3, 40) as parent:
        assert parent.hear() == "forked"
        parent.tell()
        answered = [parent.hear() for _ in range(10)]
        parent.kill()
        answered += parent.hear_all()

    queue = open_queue(str(path))
    values = [message.value for message in queue.peek(1000)]
    queue.store.close()
    check_file(path)
    for number in range(3):
        of_child = [step for who, step in values[1:] if who == f"child {number}"]
        assert of_child == list(range(40))
    of_parent = [step for who, step in values[1:] if who == "parent"]
    assert of_parent[: len(answered) + NOTED] == [*range(NOTED), *answered]
