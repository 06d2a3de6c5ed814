"""What a process remembers of a file from one transaction to the next, and when it looks again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localqueue.errors import StoreError
from localqueue.stores.protocol import LeaseRequest, Put, QueueIsFull
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.stores.sqlite.verbs.fold import EVERY

NOW = 1_700_000_000.0
ONE = LeaseRequest(("jobs",))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteQueueStore]:
    with SQLiteQueueStore(path, durability="relaxed") as store:
        yield store


@pytest.fixture
def other(path: Path) -> Iterator[SQLiteQueueStore]:
    """What another process has of the same file."""
    with SQLiteQueueStore(path, durability="relaxed") as store:
        yield store


def put(store: SQLiteQueueStore, n: int = 1, queue: str = "jobs") -> None:
    store.enqueue_many([Put(queue, b"1")] * n, now=NOW)


def break_statement(patch: pytest.MonkeyPatch, name: str) -> None:
    """Whoever runs it fails."""
    patch.setattr(SQL, name, "SELECT no_such_column FROM event")


def test_a_queue_is_looked_up_once_while_nobody_else_writes(
    store: SQLiteQueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store)
    break_statement(monkeypatch, "find_queue")

    put(store)
    leased = store.lease(ONE, now=NOW)

    assert [message.body for message in leased] == [b"1"]
    assert store.qsize("jobs", now=NOW) == 1


def test_a_queue_is_looked_up_again_after_anybody_else_wrote(
    store: SQLiteQueueStore, other: SQLiteQueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store)
    put(other, queue="elsewhere")
    break_statement(monkeypatch, "find_queue")

    with pytest.raises(StoreError):
        put(store)


def test_what_another_process_configures_acts_at_once(
    store: SQLiteQueueStore, other: SQLiteQueueStore
) -> None:
    put(store)
    store.lease(ONE, now=NOW)
    put(store)

    other.configure("jobs", {"paused": True, "maxsize": 1, "overflow": "reject"}, now=NOW)

    assert list(store.lease(ONE, now=NOW)) == []
    with pytest.raises(QueueIsFull):
        put(store)


def test_what_a_process_configures_itself_acts_at_once(store: SQLiteQueueStore) -> None:
    put(store, 2)
    put(store, queue="elsewhere")

    store.configure("jobs", {"paused": True}, now=NOW)
    assert list(store.lease(ONE, now=NOW)) == []
    store.configure("jobs", {"paused": False}, now=NOW)

    assert len(store.lease(ONE, now=NOW)) == 1


def test_what_a_process_commits_is_counted_without_reading_it_again(
    store: SQLiteQueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store)
    assert store.qsize("jobs", now=NOW) == 1
    break_statement(monkeypatch, "event_tail")

    put(store, 2 * EVERY)
    leased = store.lease(LeaseRequest(("jobs",), 10, worker="w"), now=NOW)
    put(store, EVERY)

    stats = store.stats("jobs", now=NOW)
    assert (stats.ready, stats.inflight) == (3 * EVERY + 1 - 10, len(leased))
    assert stats.leases_by_worker_id == {"w": 10}


def test_what_another_process_commits_is_counted_by_reading_it(
    store: SQLiteQueueStore, other: SQLiteQueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store)
    assert store.qsize("jobs", now=NOW) == 1

    put(other, EVERY + 1)
    put(store)
    put(other)

    assert store.qsize("jobs", now=NOW) == other.qsize("jobs", now=NOW) == EVERY + 4
    put(other)
    assert other.qsize("jobs", now=NOW) == EVERY + 5  # It reads, so it has posted it.
    break_statement(monkeypatch, "event_tail")
    with pytest.raises(StoreError):
        store.qsize("jobs", now=NOW)
