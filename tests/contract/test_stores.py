"""Every store of the library keeps the whole contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from localqueue.message import Receipt
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.protocol import LeaseRequest, Put, QueueStore
from localqueue.stores.sqlite.daybook.entries import Acks, Leases, Puts
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.testing.store_contract import QueueStoreContract
from tests.unit.stores.phrases import count_noted, note_at_once


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


class TestNotingSQLiteQueueStore(TestRelaxedSQLiteQueueStore):
    """Plain calls stand in the daybook from the first one on."""

    @pytest.fixture(autouse=True)
    def at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        note_at_once(monkeypatch)

    def test_plain_calls_are_noted(
        self, store: QueueStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noted = count_noted(monkeypatch)
        store.configure("jobs", {}, now=1.0)

        store.enqueue_many([Put("jobs", b"1")], now=1.0)
        [leased] = store.lease(LeaseRequest(("jobs",)), now=1.0)
        assert store.ack_many([Receipt("jobs", leased.id, leased.token)], now=1.0) == [True]

        assert [type(entry) for entry in noted] == [Puts, Leases, Acks]
