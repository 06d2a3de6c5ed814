"""Lives that are over are found: listed by the fold, or in the tail of the journal before that."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from localqueue.message import Receipt
from localqueue.stores.protocol import LeaseRequest, Put
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.stores.sqlite.verbs.fold import EVERY

NOW = 1_700_000_000.0
LIFE = ["enqueued", "leased", "acked"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteQueueStore]:
    store = SQLiteQueueStore(path, durability="relaxed")
    yield store
    store.close()


def query(path: Path, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(statement, values).fetchall()


def live(store: SQLiteQueueStore, n: int, queue: str = "jobs", now: float = NOW) -> list[str]:
    """So many messages that are put, leased and acknowledged together; their ids."""
    ids = [one.message.id for one in store.enqueue_many([Put(queue, b"1")] * n, now=now)]
    leased = store.lease(LeaseRequest((queue,), n), now=now)
    assert sorted(message.id for message in leased) == sorted(ids)
    receipts = [Receipt(queue, message.id, message.token) for message in leased]
    assert all(store.ack_many(receipts, now=now))
    return ids


def kinds(store: SQLiteQueueStore, message: str, queue: str = "jobs") -> list[str]:
    return [event.kind for event in store.history(queue, message)]


def listed(path: Path) -> list[tuple[int, int]]:
    return query(path, "SELECT message, seq FROM ended ORDER BY seq")


def folded_ends(path: Path) -> list[tuple[int, int]]:
    """What must be listed, from the journal."""
    return query(
        path,
        "SELECT message, seq FROM event WHERE message IS NOT NULL AND to_state IS NULL"
        " AND seq <= (SELECT seq FROM mark WHERE name = 'fold') ORDER BY seq",
    )


# --- finding them ---------------------------------------------------------------------------------
def test_an_ack_writes_nothing_into_the_list_before_the_fold(
    path: Path, store: SQLiteQueueStore
) -> None:
    [message] = live(store, 1)

    assert listed(path) == []
    assert kinds(store, message) == LIFE


def test_a_life_is_found_on_both_sides_of_the_fold(path: Path, store: SQLiteQueueStore) -> None:
    early = live(store, EVERY // 3 + 1)
    late = live(store, 10)

    assert listed(path) == folded_ends(path)
    assert len(listed(path)) == len(early)
    for message in (early[0], early[-1], late[0], late[-1]):
        assert kinds(store, message) == LIFE


def test_one_publication_has_an_end_in_every_queue_that_it_came_to(
    path: Path, store: SQLiteQueueStore
) -> None:
    """Its number is the same everywhere."""
    store.configure("news", {"fanout": "cursor"}, now=NOW)
    for name in ("a", "b"):
        store.subscribe("news", name, now=NOW)
    [published] = store.enqueue_many([Put("news", b"1")], now=NOW)
    for name in ("news.b", "news.a"):
        [message] = store.lease(LeaseRequest((name,)), now=NOW)
        receipt = Receipt(name, message.id, message.token)
        assert message.id == published.message.id
        if name == "news.b":
            assert store.ack_many([receipt], now=NOW) == [True]
        else:
            store.dead_letter_many([receipt], now=NOW)
            store.prune_dead_letters(name, older_than=0.0, now=NOW + 1)
    before = {name: kinds(store, message.id, name) for name in ("news", "news.a", "news.b")}

    live(store, EVERY)

    assert before["news"] == ["published"]
    assert before["news.a"][-2:] == ["dead_lettered", "pruned"]
    assert before["news.b"][-2:] == ["leased", "acked"]
    assert {name: kinds(store, message.id, name) for name in before} == before
    assert listed(path) == folded_ends(path)


def test_looking_for_a_life_does_not_take_longer_with_a_longer_journal(
    path: Path, store: SQLiteQueueStore
) -> None:
    [message] = live(store, 1)

    def steps() -> int:
        taken = 0

        def step() -> int:
            nonlocal taken
            taken += 1
            return 0

        with closing(sqlite3.connect(path)) as db:
            (number,) = db.execute("SELECT min(message) FROM event").fetchone()
            (fold,) = db.execute(SQL.read_mark, ("fold",)).fetchone()
            db.set_progress_handler(step, 1)
            late = db.execute(SQL.late_end, (fold, number, 1)).fetchone()
            early = db.execute(SQL.listed_end, (number, 1)).fetchone()
        assert late is None
        assert early is not None
        return taken

    live(store, EVERY)
    short = steps()
    for _ in range(10):
        live(store, EVERY)

    assert steps() == short
    assert kinds(store, message) == LIFE


# --- letting go of them ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    "settings", [{"journal": False}, {"journal_max_rows": 500}, {"journal_max_age": 30.0}]
)
def test_a_trimmed_event_leaves_no_row(
    path: Path, store: SQLiteQueueStore, settings: dict[str, Any]
) -> None:
    store.configure("jobs", settings, now=NOW)
    [first, *_] = live(store, EVERY)
    kept = live(store, 5, "other", NOW + 20)

    for number in range(4):
        live(store, EVERY, now=NOW + 40 + number)

    assert kinds(store, first) == []
    assert kinds(store, kept[0], "other") == LIFE
    assert listed(path) == folded_ends(path)
    assert store.check().problems == ()


def test_a_journal_that_is_off_lists_nothing_but_its_newest_event(
    path: Path, store: SQLiteQueueStore
) -> None:
    store.configure("jobs", {"journal": False}, now=NOW)

    for _ in range(4):
        live(store, EVERY)

    assert query(path, "SELECT seq > 0 FROM mark WHERE name = 'fold'") == [(1,)]
    assert listed(path) == folded_ends(path)
    assert len(listed(path)) <= 1, "the event that was the last of a fold stays until the next one"


def test_what_a_reader_keeps_is_listed_and_goes_with_the_reader(
    path: Path, store: SQLiteQueueStore
) -> None:
    store.configure("jobs", {"journal": False}, now=NOW)
    store.register_reader("billing", now=NOW)
    [message, *_] = live(store, EVERY)
    assert listed(path) == folded_ends(path) != []
    assert kinds(store, message) == LIFE

    store.drop_reader("billing")
    for _ in range(3):
        live(store, EVERY)

    assert kinds(store, message) == []
    assert listed(path) == folded_ends(path)
    assert len(listed(path)) <= 1


# --- other ways through the file ------------------------------------------------------------------
def test_the_list_is_right_in_a_copy_and_in_what_is_salvaged(
    path: Path, store: SQLiteQueueStore, tmp_path: Path
) -> None:
    [early, *_] = live(store, EVERY)
    [late] = live(store, 1)
    store.vacuum()
    store.backup(tmp_path / "copy.sqlite3")
    assert store.salvage(tmp_path / "saved.sqlite3").ok

    for name in ("copy.sqlite3", "saved.sqlite3"):
        with SQLiteQueueStore(tmp_path / name) as other:
            assert other.check().problems == ()
            assert kinds(other, early) == kinds(other, late) == LIFE
            live(other, EVERY)
            assert other.check().problems == ()
            assert kinds(other, early) == kinds(other, late) == LIFE
        assert listed(tmp_path / name) == folded_ends(tmp_path / name)


MISTAKES: dict[str, Callable[[sqlite3.Connection], object]] = {
    "a row too few": lambda db: db.execute(
        "DELETE FROM ended WHERE seq = (SELECT max(seq) FROM ended)"
    ),
    "a row too many": lambda db: db.execute("INSERT INTO ended VALUES (1, 1)"),
    "of another": lambda db: db.execute(
        "UPDATE ended SET message = 1 WHERE seq = (SELECT max(seq) FROM ended)"
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_list_that_is_not_the_journals_is_found_and_made_anew(
    path: Path, store: SQLiteQueueStore, tmp_path: Path, mistake: str
) -> None:
    live(store, EVERY)
    store.close()
    with closing(sqlite3.connect(path)) as db, db:
        MISTAKES[mistake](db)

    with SQLiteQueueStore(path) as damaged:
        assert {problem.table for problem in damaged.check().problems} <= {"ended", "event"}
        assert not damaged.check().ok
        assert damaged.salvage(tmp_path / "saved.sqlite3").ok

    saved = tmp_path / "saved.sqlite3"
    assert listed(saved) == folded_ends(saved) != []
