"""Every store of the library keeps the whole contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.protocol import QueueStore
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.testing.store_contract import QueueStoreContract


class TestMemoryQueueStore(QueueStoreContract):
    @pytest.fixture
    def store(self) -> Iterator[QueueStore]:
        store = MemoryQueueStore()
        yield store
        store.close()

    def another(self) -> QueueStore:
        return MemoryQueueStore()


class TestSQLiteQueueStore(QueueStoreContract):
    durability: Literal["full", "relaxed"] = "full"
    folder: Path
    opened: list[SQLiteQueueStore]

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[QueueStore]:
        self.folder, self.opened = tmp_path, []
        yield self._open("queue.sqlite3")
        for store in self.opened:
            store.close()

    def reopen(self, store: QueueStore) -> QueueStore:
        store.close()
        return self._open("queue.sqlite3")

    def another(self) -> QueueStore:
        return self._open("another.sqlite3")

    def _open(self, name: str) -> QueueStore:
        store = SQLiteQueueStore(self.folder / name, durability=self.durability)
        self.opened.append(store)
        return store


class TestRelaxedSQLiteQueueStore(TestSQLiteQueueStore):
    """What relaxed durability may lose is lost with the power, not with a closed store."""

    durability = "relaxed"
