"""Two SQLite libraries in one process on one file.

Proven: without care an answered write is lost, with no error anywhere. The registry of open files
refuses the second library while a store has the file, and the store while the library has it; then
nothing is lost.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from localqueue.errors import StoreBusy
from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite import open_files
from tests.faults.nursery import Nursery
from tests.faults.oracle import read_oracle
from tests.faults.soundness import check_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.sqlite3"


@pytest.mark.parametrize("both", [False, True])
def test_without_care_the_second_library_costs_an_answered_write(
    nursery: Nursery, path: Path, both: bool
) -> None:
    oracle = path.with_name("oracle")
    assert nursery.run("libraries:meet_without_a_store", str(path), str(oracle), both) == 0

    with closing(sqlite3.connect(path)) as db:
        found = [text for (text,) in db.execute("SELECT text FROM note")]

    assert [entry.what for entry in read_oracle(oracle)] == [["after"]], "it was answered"
    assert ("after" in found) == (not both)


def meet(
    nursery: Nursery, path: Path, durability: str = "full", defect: str | None = None
) -> tuple[list[str], list[str]]:
    """What the process was told, and what is stored."""
    oracle = path.with_name("oracle")
    status = nursery.run("libraries:meet_in_a_store", str(path), str(oracle), durability, defect)
    assert status == 0
    told = [entry.what[0] for entry in read_oracle(oracle)]
    with PersistentQueue[str]("jobs", store_path=path) as queue:
        found = [message.value for message in queue.peek(10)]
    check_file(path)
    return told, found


@pytest.mark.parametrize("durability", ["full", "relaxed"])
def test_the_second_library_is_refused_while_a_store_has_the_file(
    nursery: Nursery, path: Path, durability: str
) -> None:
    told, found = meet(nursery, path, durability)

    assert told == ["refused", "after"]
    assert found == ["before", "after"]


def test_a_registry_that_lets_everybody_in_is_caught(nursery: Nursery, path: Path) -> None:
    told, found = meet(nursery, path, "relaxed", "LetsEverybodyIn")

    assert told == ["read it", "after"], "it was answered"
    assert found == ["before"]


def test_what_the_second_library_takes_away_is_seen_before_the_answer_when_it_is_synced(
    nursery: Nursery, path: Path
) -> None:
    told, found = meet(nursery, path, "full", "LetsEverybodyIn")

    assert told == ["read it", "StoreError"]
    assert found == ["before"]


def test_a_store_is_refused_while_another_library_has_the_file(path: Path) -> None:
    with PersistentQueue[str]("jobs", store_path=path) as queue:
        queue.put("before")
    stat = path.stat()
    queue = PersistentQueue("jobs", store_path=path)

    with open_files.alone((stat.st_dev, stat.st_ino)), pytest.raises(StoreBusy):
        queue.put("refused")

    queue.put("after")
    queue.close()
    with open_files.alone((stat.st_dev, stat.st_ino)):
        pass
