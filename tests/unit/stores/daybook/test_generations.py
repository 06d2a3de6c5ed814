"""Which entries of a book that somebody left count, and what becomes of those that do not."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from localqueue.stores.sqlite.daybook.entries import Entry
from localqueue.stores.sqlite.daybook.file import SIZE, START
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.unit.stores.daybook.phrases import (
    NOW,
    QUEUE,
    ack,
    as_left_by_a_kill,
    bodies,
    daybook,
    is_noted,
    lease,
    open_store,
    put,
    query,
    waiting,
)
from tests.unit.stores.phrases import count_noted

pytestmark = pytest.mark.usefixtures("noting")
LOST = "events were lost with a power cut"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.sqlite3"


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    return count_noted(monkeypatch)


@pytest.fixture
def store(path: Path, noting: None) -> Iterator[SQLiteQueueStore]:
    with open_store(path) as store:
        yield store


def written(path: Path) -> bytes:
    """What stands in the book, without the zeros after it."""
    return daybook(path).read_bytes()[START:].rstrip(b"\0")


def overwrite(path: Path, at: int, data: bytes) -> None:
    with daybook(path).open("r+b") as file:
        file.seek(START + at)
        file.write(data)


# --- what was left ------------------------------------------------------------------------------
def test_what_a_killed_process_noted_is_there_for_the_next(
    path: Path, store: SQLiteQueueStore, tmp_path: Path, noted: list[Entry]
) -> None:
    put(store, b"1", b"2", b"3")
    ids = put(store, b"4")
    ack(store, lease(store))
    lease(store)
    assert len(noted) == 5
    left = as_left_by_a_kill(path, tmp_path / "left")
    assert query(left, "SELECT count(*) FROM message") == [(0,)]

    with SQLiteQueueStore(left) as next_one:
        assert waiting(next_one) == [b"3", b"4"]
        assert [message.id for message in next_one.peek(QUEUE, 9, now=NOW)][-1:] == ids
        assert next_one.stats(QUEUE, now=NOW).inflight == 1
        assert next_one.check().ok


def test_a_generation_that_was_posted_is_not_read_again(
    path: Path, store: SQLiteQueueStore, tmp_path: Path, noted: list[Entry]
) -> None:
    put(store, b"1", b"2")
    put(store, b"3")
    assert waiting(store) == [b"1", b"2", b"3"]
    assert len(noted) == 2
    left = as_left_by_a_kill(path, tmp_path / "left")
    assert written(left)

    with SQLiteQueueStore(left) as next_one:
        assert waiting(next_one) == [b"1", b"2", b"3"]
        put(next_one, b"4")
        assert waiting(next_one) == [b"1", b"2", b"3", b"4"]


def test_what_is_left_of_a_longer_generation_does_not_count(
    path: Path, store: SQLiteQueueStore, tmp_path: Path, noted: list[Entry]
) -> None:
    for number in range(20):
        put(store, b"%d" % number)
    assert len(waiting(store)) == 20
    put(store, b"20")
    assert len(noted) == 21

    with SQLiteQueueStore(as_left_by_a_kill(path, tmp_path / "left")) as next_one:
        assert waiting(next_one) == [b"%d" % number for number in range(21)]


# --- damage -------------------------------------------------------------------------------------
def test_a_last_entry_that_was_cut_short_never_happened(
    path: Path, store: SQLiteQueueStore, tmp_path: Path
) -> None:
    put(store, b"1")
    put(store, b"2")
    whole = len(written(path))
    put(store, b"3")
    left = as_left_by_a_kill(path, tmp_path / "left")
    overwrite(left, whole + 10, bytes(100))

    with SQLiteQueueStore(left) as next_one:
        assert waiting(next_one) == [b"1", b"2"]
        put(next_one, b"4")
        assert waiting(next_one) == [b"1", b"2", b"4"]
        assert next_one.check().ok


def test_a_first_entry_that_was_cut_short_keeps_nobody_from_reading(
    path: Path, store: SQLiteQueueStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(store, b"1")
    left = as_left_by_a_kill(path, tmp_path / "left")
    overwrite(left, 30, b"\xff")

    with SQLiteQueueStore(left, durability="relaxed") as next_one:
        assert waiting(next_one) == []
        put(next_one, b"2")
        put(next_one, b"3")
        assert waiting(next_one) == [b"2", b"3"]
    assert "its first entry cannot be read" in caplog.text


@pytest.mark.parametrize("size", [0, 10, 70, SIZE])
def test_a_book_that_was_never_written_is_nobodys(
    path: Path, store: SQLiteQueueStore, tmp_path: Path, size: int
) -> None:
    store.enqueue_many([], now=NOW)
    left = as_left_by_a_kill(path, tmp_path / "left")
    daybook(left).write_bytes(bytes(size))

    with SQLiteQueueStore(left) as next_one:
        assert waiting(next_one) == []
        for number in range(3):
            put(next_one, b"%d" % number)
        assert waiting(next_one) == [b"0", b"1", b"2"]
    assert [file.name for file in left.parent.iterdir()] == [left.name]


# --- another file -------------------------------------------------------------------------------
def test_a_book_of_another_file_is_put_aside(
    path: Path,
    store: SQLiteQueueStore,
    tmp_path: Path,
    noted: list[Entry],
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(store, b"of another file")
    other = tmp_path / "other.sqlite3"
    open_store(other).close()
    shutil.copy(daybook(path), daybook(other))
    before = daybook(other).read_bytes()

    with SQLiteQueueStore(other, durability="relaxed") as own:
        assert waiting(own) == []
        put(own, b"1")
        put(own, b"2")
        assert waiting(own) == [b"1", b"2"]

    [aside] = tmp_path.glob("other.sqlite3-daybook-*")
    assert aside.read_bytes() == before
    assert aside.name in caplog.text


def test_a_book_of_an_older_kind_is_put_aside(
    path: Path, store: SQLiteQueueStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its entries are not read as what they do not say, and not lost."""
    put(store, b"noted")
    left = as_left_by_a_kill(path, tmp_path / "left")
    overwrite(left, -START, b"LQUEday1")
    before = daybook(left).read_bytes()

    with SQLiteQueueStore(left, durability="relaxed") as next_one:
        assert waiting(next_one) == []
        put(next_one, b"1")
        put(next_one, b"2")
        assert waiting(next_one) == [b"1", b"2"]

    [aside] = left.parent.glob("*-daybook-*")
    assert aside.read_bytes() == before
    assert aside.name in caplog.text


# --- events that do not follow ------------------------------------------------------------------
def test_what_follows_on_events_that_a_power_cut_took_is_lost_with_them(
    path: Path, store: SQLiteQueueStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(store, b"1")
    assert waiting(store) == [b"1"]
    left = as_left_by_a_kill(path, tmp_path / "left")
    put(store, b"2")
    assert waiting(store) == [b"1", b"2"]
    put(store, b"3", b"4")
    shutil.copy(daybook(path), daybook(left))

    with caplog.at_level(logging.WARNING), SQLiteQueueStore(left, durability="relaxed") as next_one:
        assert waiting(next_one) == [b"1"]
        assert f"2 {LOST}" in caplog.text
        # The tables come to the numbers that were lost: those do not count for that.
        for number in range(5):
            put(next_one, b"new %d" % number)
            assert waiting(next_one)[1:] == [b"new %d" % n for n in range(number + 1)]
        assert next_one.check().ok


def test_events_that_somebody_without_a_book_has_used_are_noted_under_other_numbers(
    path: Path, store: SQLiteQueueStore, tmp_path: Path
) -> None:
    put(store, b"there")
    assert waiting(store) == [b"there"]
    put(store, b"1", b"2", b"3")
    ack(store, lease(store, 2))
    lease(store)
    left = as_left_by_a_kill(path, tmp_path / "left")
    with closing(sqlite3.connect(left)) as db, db:
        db.execute(
            "INSERT INTO event (seq, at, queue, kind, n, by)"
            " SELECT max(seq) + 1, ?, 1, 0, 1, 0 FROM event",
            (NOW,),
        )

    with SQLiteQueueStore(left, durability="relaxed") as next_one:
        put(next_one, b"4")
        assert waiting(next_one) == [b"3", b"4"]
        assert next_one.stats(QUEUE, now=NOW).inflight == 1
        kinds = [event.kind for event in next_one.journal()][2:]
        assert kinds == [
            "configured", *["enqueued"] * 3, *["leased"] * 2, *["acked"] * 2, "leased", "enqueued",
        ]  # fmt: skip
        assert next_one.check().ok
        [third] = lease(next_one)
        assert bodies([third]) == [b"3"]
        assert ack(next_one, [third]) == [True]


# --- power cuts ---------------------------------------------------------------------------------
class Boot:
    """A clock of this boot."""

    def __init__(self, name: str) -> None:
        self._name = name

    def boot_id(self) -> str:
        return self._name

    def steady(self) -> float:
        return 5.0

    def wall(self) -> float:
        return NOW


def test_entries_of_a_boot_of_which_a_power_cut_left_only_those_do_not_count_behind_newer_ones(
    path: Path, store: SQLiteQueueStore, tmp_path: Path, noted: list[Entry]
) -> None:
    """The newer ones have the same events, and the book the same salt."""
    put(store, b"before")
    assert waiting(store) == [b"before"]
    entries: dict[str, bytes] = {}

    for name in ("older", "newer"):
        begun = as_left_by_a_kill(path, tmp_path / name)
        with open_store(begun) as next_one:
            for number in range(9 if name == "older" else 3):
                assert is_noted(noted, partial(put, next_one, f"{name} {number}".encode()))
            entries[name] = written(begun)
            left = as_left_by_a_kill(begun, tmp_path / f"{name} left")
    overwrite(left, len(entries["newer"]), entries["older"][len(entries["newer"]) :])

    with SQLiteQueueStore(left) as after:
        assert waiting(after) == [b"before", b"newer 0", b"newer 1", b"newer 2"]


def test_ids_of_a_boot_of_which_a_power_cut_left_nothing_are_not_used_again(tmp_path: Path) -> None:
    """The next boot begins with the same tables."""
    path = tmp_path / "queue.sqlite3"
    with open_store(path) as store:
        store.open_clock(Boot("first"))
    ids: list[str] = []

    for name in ("second", "third"):
        begun = as_left_by_a_kill(path, tmp_path / name)
        with SQLiteQueueStore(begun, durability="relaxed") as store:
            store.open_clock(Boot(name))
            ids += put(store, *[b"1"] * 100)

    assert len(set(ids)) == 200
