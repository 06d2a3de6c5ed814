"""Stores, a clock and queues: every test of the queue runs in memory and on a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localqueue.queue import PersistentQueue
from localqueue.testing import ManualClock
from tests.unit.queue.phrases import (
    NewQueue,
    Queue,
    WatchedMemoryStore,
    WatchedSQLiteStore,
    WatchedStore,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def file_store(tmp_path: Path) -> Iterator[WatchedSQLiteStore]:
    """For what only a file does."""
    store = WatchedSQLiteStore(tmp_path / "queue.sqlite3")
    yield store
    store.close()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> Iterator[WatchedStore]:
    if request.param == "sqlite":
        yield request.getfixturevalue("file_store")
    else:
        store = WatchedMemoryStore()
        yield store
        store.close()


@pytest.fixture
def only_signals_wake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who waits looks again by himself, so that a lost signal is seen."""
    monkeypatch.setattr("localqueue.calls.patience.LOOK_AGAIN", 3600.0)


@pytest.fixture
def new_queue(store: WatchedStore, clock: ManualClock) -> NewQueue:
    """Makes queues on the store and the clock of the test; more than one may have the same name."""

    def make(name: str = "jobs", **options: Any) -> Queue:
        return PersistentQueue(name, **{"store": store, "clock": clock} | options)

    return make


@pytest.fixture
def queue(new_queue: NewQueue) -> Queue:
    return new_queue()
