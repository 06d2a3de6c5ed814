"""Queues that somebody listens to, in memory and on a file, called by blocking and by awaiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localqueue.queue import PersistentQueue
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.testing import ManualClock
from tests.unit.telemetry.phrases import Awaited, Heard, NewQueue, Queue


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[MemoryQueueStore | SQLiteQueueStore]:
    path = tmp_path / "queue.sqlite3"
    memory = request.param == "memory"
    with_store = MemoryQueueStore() if memory else SQLiteQueueStore(path, durability="relaxed")
    yield with_store
    with_store.close()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def new_queue(store: Any, clock: ManualClock, heard: Heard) -> NewQueue:
    """Makes queues on the store and the clock of the test, with ``heard`` as their listener."""

    def make(name: str = "jobs", **options: Any) -> Queue:
        return PersistentQueue(
            name, **{"store": store, "clock": clock, "listeners": [heard]} | options
        )

    return make


@pytest.fixture
def queue(new_queue: NewQueue) -> Queue:
    return new_queue()


@pytest.fixture(params=["blocking", "awaited"])
def calls(request: pytest.FixtureRequest) -> Iterator[Callable[[Queue], Any]]:
    """How a test calls its queue: the queue itself, or its awaitable twin."""
    if request.param == "blocking":
        yield lambda queue: queue
    else:
        loop = asyncio.new_event_loop()
        yield lambda queue: Awaited(queue, loop)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
