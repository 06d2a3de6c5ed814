"""What has to be on stable storage before what is overwritten or answered."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localqueue.errors import StoreError, StoreFull
from localqueue.stores.protocol import LeaseRequest
from localqueue.stores.sqlite import ballast, opened
from localqueue.stores.sqlite.daybook import posting
from localqueue.stores.sqlite.daybook.entries import Entry
from localqueue.stores.sqlite.daybook.file import DaybookFile
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.stores.sqlite.turnstile import SYNC_FAILED
from tests.unit.stores.daybook.phrases import (
    NOW,
    QUEUE,
    ack,
    is_noted,
    lease,
    open_store,
    put,
    waiting,
)
from tests.unit.stores.engine.phrases import meeting, runner_of
from tests.unit.stores.phrases import count_noted

pytestmark = [
    pytest.mark.usefixtures("noting"),
    pytest.mark.skipif(
        not Path("/proc/self/fd").exists(), reason="only Linux tells what is synced"
    ),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.sqlite3"


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    return count_noted(monkeypatch)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is synced and what is noted, in its order."""
    done: list[str] = []
    sync, append = os.fdatasync, DaybookFile.append

    def synced(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        done.append(f"sync {name.rpartition('-')[2]}")
        sync(descriptor)

    def appended(self: DaybookFile, data: bytes, at: int) -> None:
        done.append("note")
        append(self, data, at)

    monkeypatch.setattr(os, "fdatasync", synced)
    monkeypatch.setattr(DaybookFile, "append", appended)
    return done


@pytest.fixture
def full(
    path: Path, noting: None, noted: list[Entry], done: list[str]
) -> Iterator[SQLiteQueueStore]:
    """In the middle of a generation."""
    with open_store(path, "full") as store:
        for _ in range(3):
            put(store)
        assert noted
        done.clear()
        yield store


def test_a_put_that_is_noted_is_answered_after_a_sync_of_the_book_alone(
    full: SQLiteQueueStore, done: list[str]
) -> None:
    put(full)

    assert done == ["note", "sync daybook"]


def test_a_lease_that_is_noted_waits_for_the_disk_only_where_it_removes(
    full: SQLiteQueueStore, done: list[str]
) -> None:
    leased = lease(full)
    assert done == ["note"]

    lease(full, remove=True)
    assert done[1:] == ["note", "sync daybook"]

    ack(full, leased)
    assert done[3:] == ["note", "sync daybook"]


def test_calls_that_are_noted_together_share_a_sync(
    full: SQLiteQueueStore, done: list[str], noted: list[Entry]
) -> None:
    before = len(noted)

    with meeting(full) as met:
        for number in range(8):
            met.add(f"put {number}", partial(put, full, b"%d" % number))

    assert not met.errors
    assert [len(entry[3]) for entry in noted[before:]] == [8], "puts that meet are one entry"
    assert done == ["note", "sync daybook"]


def test_a_relaxed_store_syncs_nothing(path: Path, done: list[str]) -> None:
    with open_store(path) as store:
        done.clear()
        for _ in range(3):
            put(store)
            assert waiting(store)

        assert set(done) == {"note"}


def post_without_a_sync(store: SQLiteQueueStore) -> None:
    """A lease is for the tables where it is asked of several queues, and waits for no disk."""
    store.lease(LeaseRequest((QUEUE, "another"), 0), now=NOW)


def test_the_tables_last_before_entries_that_had_to_last_are_written_over(
    full: SQLiteQueueStore, done: list[str], noted: list[Entry]
) -> None:
    post_without_a_sync(full)
    assert done == []

    assert not is_noted(noted, lambda: put(full))
    assert done == ["sync wal"], "one for both: it is a transaction itself"

    assert is_noted(noted, lambda: put(full))
    assert done == ["sync wal", "note", "sync daybook"]


def test_a_relaxed_process_that_writes_over_them_syncs_the_tables_too(
    path: Path, full: SQLiteQueueStore, done: list[str], noted: list[Entry]
) -> None:
    with SQLiteQueueStore(path, durability="relaxed") as relaxed:
        assert waiting(relaxed)
        while not is_noted(noted, lambda: put(full)):
            """The other one had the file."""
        done.clear()

        assert not is_noted(noted, lambda: put(relaxed))
        assert done == []
        assert is_noted(noted, lambda: put(relaxed))
        assert done == ["sync wal", "note"]
        assert is_noted(noted, lambda: put(relaxed))
        assert waiting(relaxed)
        assert is_noted(noted, lambda: put(relaxed))
        assert done == ["sync wal", "note", "note", "note"]


def test_a_book_that_was_replaced_is_noticed_before_anybody_is_answered(
    path: Path, full: SQLiteQueueStore, tmp_path: Path
) -> None:
    book = path.with_name(f"{path.name}-daybook")
    book.rename(tmp_path / "elsewhere")

    with pytest.raises(StoreError):
        put(full)


def is_marked(path: Path) -> bool:
    """Whether whoever writes next has to repair the file."""
    marks = (path.with_name(f"{path.name}-run") / "lock").read_bytes()
    return marks[SYNC_FAILED] == 1


def test_tables_whose_sync_fails_as_a_file_is_closed_are_repaired_by_the_next_who_writes(
    path: Path, noting: None, noted: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one would go on behind what the disk has refused."""
    with open_store(path, "full") as other:
        store = open_store(path, "full")
        put(store)
        assert is_noted(noted, lambda: put(store))
        with monkeypatch.context() as failing:

            def fail(descriptor: int) -> None:
                raise OSError(errno.EIO, "Input/output error")

            failing.setattr(os, "fdatasync", fail)
            store.close()
        assert is_marked(path)

        put(other)

        assert not is_marked(path)
        with sqlite3.connect(f"file:{path}?immutable=1", uri=True) as without_wal:
            (n,) = without_wal.execute("SELECT count(*) FROM message").fetchone()
        without_wal.close()
        assert n >= 2


def test_a_repair_that_finds_the_disk_full_takes_from_the_ballast(
    path: Path, full: SQLiteQueueStore, noted: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it has succeeded nothing could be taken out, and the disk would stay full."""
    leased = lease(full)
    file = runner_of(full)._holding.file
    assert file is not None
    post, failures = posting.post, iter([sqlite3.OperationalError("database or disk is full")])

    def post_when_there_is_room(*given: Any) -> None:
        for error in failures:
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        post(*given)

    monkeypatch.setattr(opened, "post", post_when_there_is_room)
    monkeypatch.setattr(ballast, "_free", lambda folder: 0)
    file.lock.mark(SYNC_FAILED, True)

    assert ack(full, leased) == [True]

    assert not is_marked(path)
    with pytest.raises(StoreFull):
        put(full)
    monkeypatch.undo()
    file.ballast._next_look = 0.0
    put(full)
