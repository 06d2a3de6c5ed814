"""Every result store of the library keeps the contract, and the contract can fail."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from localqueue import InvalidResult, PersistentQueue, SQLiteQueueStore, StoreBusy
from localqueue.errors import StoreClosed, StoreUnsupported
from localqueue.results import (
    MemoryResultStore,
    ResultRecords,
    ResultStore,
    ResultStoreLockedError,
    SQLiteResultStore,
)
from localqueue.stores.records import RecordChange
from localqueue.testing.result_contract import ResultStoreContract


class TestMemoryResultStore(ResultStoreContract):
    @pytest.fixture
    def store(self) -> Iterator[ResultStore]:
        with MemoryResultStore() as store:
            yield store


class TestSQLiteResultStore(ResultStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[ResultStore]:
        with SQLiteResultStore(tmp_path / "results.sqlite3") as store:
            yield store

    def reopen(self, store: ResultStore) -> ResultStore:
        assert isinstance(store, SQLiteResultStore)
        store.close()
        return SQLiteResultStore(store.path)


class TestResultsBesideMessages(ResultStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[ResultStore]:
        with SQLiteQueueStore(tmp_path / "queue.sqlite3") as queue_store:
            yield ResultRecords.of(queue_store)


def test_the_file_of_a_queue_can_hold_results_too(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    with PersistentQueue[Any]("jobs", store_path=path) as queue, SQLiteResultStore(path) as results:
        queue.put("job")
        results.save("key", {"a": 1})

        assert ResultRecords.of(queue.store).load("key") == {"a": 1}
        assert queue.get() == "job"


def test_a_closed_view_leaves_the_store_of_the_queue_open(tmp_path: Path) -> None:
    with SQLiteQueueStore(tmp_path / "queue.sqlite3") as store:
        with ResultRecords.of(store) as results:
            results.save("key", 1)

        assert ResultRecords.of(store).load("key") == 1


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    for store in (MemoryResultStore(), SQLiteResultStore(tmp_path / "results.sqlite3")):
        store.close()
        store.close()

        with pytest.raises(StoreClosed):
            store.load("key")


def test_a_file_of_a_newer_release_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite3"
    with SQLiteResultStore(path) as store:
        store.save("key", 1)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 999")

    with SQLiteResultStore(path) as store, pytest.raises(StoreUnsupported, match="999"):
        store.load("key")


def test_a_record_of_a_newer_release_is_rejected(tmp_path: Path) -> None:
    with SQLiteResultStore(tmp_path / "results.sqlite3") as store:
        newer = RecordChange("result", "key", b'{"v":2,"value":1}')
        store.store.change_records([newer], now=0.0)

        with pytest.raises(StoreUnsupported, match="version 2"):
            store.load("key")


def test_a_file_that_somebody_else_holds_is_a_locked_store(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite3"
    with SQLiteResultStore(path, 0.05) as store:
        store.save("key", 1)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")

            with pytest.raises(ResultStoreLockedError, match="locked by another process") as locked:
                store.save("key", 2)

        assert isinstance(locked.value, StoreBusy | RuntimeError)
        assert locked.value.path == path.resolve()
        assert store.load("key") == 1


def test_what_cannot_be_stored_is_named() -> None:
    with MemoryResultStore() as store, pytest.raises(InvalidResult, match="set"):
        store.save("key", {1, 2})


class KeepsTheObject(MemoryResultStore):
    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, Any] = {}

    def load(self, key: str) -> Any:
        return self.values.get(key)

    def save(self, key: str, value: Any) -> None:
        self.values[key] = value

    def delete(self, key: str) -> None:
        del self.values[key]


@pytest.mark.parametrize(
    "sentence",
    [
        "test_what_is_saved_is_a_copy",
        "test_a_value_that_json_cannot_say_is_refused_and_changes_nothing",
        "test_an_empty_key_is_refused",
    ],
)
def test_a_store_that_keeps_the_object_is_caught(sentence: str) -> None:
    with KeepsTheObject() as store, pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(ResultStoreContract(), sentence)(store)


def test_a_store_that_cannot_delete_twice_is_caught() -> None:
    with KeepsTheObject() as store, pytest.raises(KeyError):
        ResultStoreContract().test_deleting_an_unknown_key_does_nothing(store)
