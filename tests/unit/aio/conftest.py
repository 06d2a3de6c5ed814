"""Queues for event loops: in memory, on a file, and on a custom store with the simple verbs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localqueue.queue import PersistentQueue
from tests.unit.aio.phrases import (
    Aio,
    GatedClock,
    NewQueue,
    Queue,
    WatchedMemoryStore,
    WatchedMinimalStore,
    WatchedSQLiteStore,
    WatchedStore,
)


@pytest.fixture
def clock() -> GatedClock:
    return GatedClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.sqlite3"


@pytest.fixture(params=["memory", "sqlite", "minimal"])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[WatchedStore]:
    """For what every store can."""
    yield from _opened(request.param, path)


@pytest.fixture(params=["memory", "sqlite"])
def whole_store(request: pytest.FixtureRequest, path: Path) -> Iterator[WatchedStore]:
    """For what the simple verbs do not reach."""
    yield from _opened(request.param, path)


@pytest.fixture
def new_queue(store: WatchedStore, clock: GatedClock) -> NewQueue:
    """Makes queues on the store and the clock of the test."""

    def make(name: str = "jobs", **options: Any) -> Queue:
        chosen: dict[str, Any] = {"store": store, "clock": clock} | options
        return PersistentQueue(name, **chosen)

    return make


@pytest.fixture
def queue(new_queue: NewQueue) -> Aio:
    return new_queue().aio


@pytest.fixture
def whole_queue(whole_store: WatchedStore, clock: GatedClock) -> Aio:
    whole: Queue = PersistentQueue("jobs", store=whole_store, clock=clock)
    return whole.aio


@pytest.fixture
def only_signals_wake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who waits looks again by himself, so that a lost signal is seen."""
    monkeypatch.setattr("localqueue.calls.patience.LOOK_AGAIN", 3600.0)


def _opened(kind: str, path: Path) -> Iterator[WatchedStore]:
    store: WatchedStore
    if kind == "sqlite":
        store = WatchedSQLiteStore(path)
    elif kind == "memory":
        store = WatchedMemoryStore()
    else:
        store = WatchedMinimalStore()
    yield store
    store.close()
