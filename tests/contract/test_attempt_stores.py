"""The attempt contract over every store we ship, and over one with nothing but the four methods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from localqueue import MemoryQueueStore, SQLiteQueueStore
from localqueue.retry import (
    AttemptStore,
    MemoryAttemptStore,
    RecordAttemptStore,
    RetryRecord,
    SQLiteAttemptStore,
)
from localqueue.testing.attempt_contract import AttemptStoreContract


class FourMethods:
    """A store as somebody else would write it."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, object]] = {}

    def load(self, key: str) -> RetryRecord | None:
        row = self.rows.get(key)
        return None if row is None else RetryRecord(**row)  # type: ignore[arg-type]

    def save(self, key: str, record: RetryRecord) -> None:
        self.rows[key] = asdict(record)

    def delete(self, key: str) -> None:
        self.rows.pop(key, None)

    def prune_exhausted(self, *, older_than: float, now: float) -> int:
        loaded = {key: RetryRecord(**row) for key, row in self.rows.items()}  # type: ignore[arg-type]
        old = [
            key
            for key, record in loaded.items()
            if record.exhausted and now - record.first_attempt_at >= older_than
        ]
        for key in old:
            del self.rows[key]
        return len(old)


class TestMemoryAttemptStore(AttemptStoreContract):
    @pytest.fixture
    def store(self) -> AttemptStore:
        return MemoryAttemptStore()


class TestSQLiteAttemptStore(AttemptStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[AttemptStore]:
        with SQLiteAttemptStore(tmp_path / "retries.sqlite3") as store:
            yield store

    def reopen(self, store: AttemptStore) -> AttemptStore:
        assert isinstance(store, SQLiteAttemptStore)
        store.close()
        return SQLiteAttemptStore(store.path)


class TestRecordsOfAMemoryQueueStore(AttemptStoreContract):
    @pytest.fixture
    def store(self) -> AttemptStore:
        return RecordAttemptStore(MemoryQueueStore())


class TestRecordsOfAQueuesFile(AttemptStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[AttemptStore]:
        with SQLiteQueueStore(tmp_path / "queue.sqlite3") as store:
            yield RecordAttemptStore(store)


class TestAStoreWithTheFourMethods(AttemptStoreContract):
    @pytest.fixture
    def store(self) -> AttemptStore:
        return FourMethods()
