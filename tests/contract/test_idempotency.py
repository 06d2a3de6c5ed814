"""Every ledger of the library keeps the contract, and the contract can fail."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from localqueue import InvalidArgument, SQLiteQueueStore, WrongType
from localqueue.errors import StoreClosed, StoreCorrupt, StoreUnsupported
from localqueue.idempotency import (
    IdempotencyRecord,
    IdempotencyRecords,
    IdempotencyStore,
    IdempotencyStoreLockedError,
    MemoryIdempotencyStore,
    SQLiteIdempotencyStore,
)
from localqueue.stores.records import RecordChange
from localqueue.testing.idempotency_contract import DONE, NOW, IdempotencyStoreContract


class TestMemoryIdempotencyStore(IdempotencyStoreContract):
    @pytest.fixture
    def store(self) -> Iterator[IdempotencyStore]:
        with MemoryIdempotencyStore() as store:
            yield store


class TestSQLiteIdempotencyStore(IdempotencyStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[IdempotencyStore]:
        with SQLiteIdempotencyStore(tmp_path / "ledger.sqlite3") as store:
            yield store

    def reopen(self, store: IdempotencyStore) -> IdempotencyStore:
        assert isinstance(store, SQLiteIdempotencyStore)
        store.close()
        return SQLiteIdempotencyStore(store.path)


class TestLedgerBesideMessages(IdempotencyStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[IdempotencyStore]:
        with SQLiteQueueStore(tmp_path / "queue.sqlite3") as queue_store:
            yield IdempotencyRecords.of(queue_store)


def test_a_pending_record_was_seen_now() -> None:
    before = time.time()
    record = IdempotencyRecord.pending(queue="jobs")

    assert before <= record.first_seen_at <= time.time()
    assert (record.status, record.completed_at, record.result_key) == ("pending", None, None)
    assert record.metadata == {"queue": "jobs"}


def test_a_status_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="pending, succeeded, failed"):
        IdempotencyRecord("done", NOW)  # type: ignore[arg-type]
    with pytest.raises(WrongType, match="metadata"):
        IdempotencyRecord("pending", NOW, metadata=[])  # type: ignore[arg-type]


def test_of_two_changes_of_one_record_the_second_is_refused() -> None:
    with MemoryIdempotencyStore() as store:
        seen = store.find("key")
        assert store.replace("key", seen, DONE)

        assert not store.replace("key", seen, IdempotencyRecord.pending())

        assert store.load("key") == DONE


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    for store in (MemoryIdempotencyStore(), SQLiteIdempotencyStore(tmp_path / "l.sqlite3")):
        store.close()
        store.close()

        with pytest.raises(StoreClosed):
            store.load("key")


def test_a_file_of_a_newer_release_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    with SQLiteIdempotencyStore(path) as store:
        store.save("key", DONE)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 999")

    with SQLiteIdempotencyStore(path) as store, pytest.raises(StoreUnsupported, match="999"):
        store.load("key")


@pytest.mark.parametrize(
    ("kept", "error"),
    [
        (b'{"v":2,"status":"pending","first_seen_at":1}', StoreUnsupported),
        (b'{"v":1,"status":"unheard of","first_seen_at":1}', StoreCorrupt),
        (b"not JSON", StoreCorrupt),
        (b"[]", StoreCorrupt),
    ],
)
def test_a_record_that_cannot_be_read_is_an_error(kept: bytes, error: type[Exception]) -> None:
    with MemoryIdempotencyStore() as store:
        store.store.change_records([RecordChange("ledger", "key", kept)], now=0.0)

        with pytest.raises(error):
            store.load("key")


def test_a_file_that_somebody_else_holds_is_a_locked_store(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite3"
    with SQLiteIdempotencyStore(path, 0.05) as store:
        store.save("key", DONE)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")

            with pytest.raises(IdempotencyStoreLockedError, match="locked by another") as locked:
                store.delete("key")

        assert isinstance(locked.value, RuntimeError)
        assert locked.value.path == path.resolve()
        assert store.load("key") == DONE


class ForgetsTheIndex(MemoryIdempotencyStore):
    def count_completed_older_than(self, *, older_than: float, now: float) -> int:
        return 0


class PrunesEverything(MemoryIdempotencyStore):
    def prune_completed(self, *, older_than: float, now: float) -> int:
        return super().prune_completed(older_than=0, now=now + 1e9)


@pytest.mark.parametrize("broken", [ForgetsTheIndex, PrunesEverything])
def test_a_ledger_that_prunes_wrongly_is_caught(broken: type[MemoryIdempotencyStore]) -> None:
    with broken() as store, pytest.raises(AssertionError):
        IdempotencyStoreContract().test_what_succeeded_long_ago_is_pruned(store)
