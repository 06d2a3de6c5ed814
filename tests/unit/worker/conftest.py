from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from localqueue import MemoryQueueStore, PersistentQueue
from localqueue.worker import persistent_async_worker, persistent_worker
from localqueue.worker.lease_watch import retire_watches

Work = Callable[..., Any]


class Blocking:
    """A handler becomes a decorated function that a thread calls."""

    name = "sync"

    def worker(self, queue: PersistentQueue[Any], handler: Work, **options: Any) -> Work:
        return persistent_worker(queue, **options)(handler)


class Awaited:
    """The same handler as a coroutine function; every call has an event loop of its own."""

    name = "async"

    def worker(self, queue: PersistentQueue[Any], handler: Work, **options: Any) -> Work:
        @persistent_async_worker(queue, **options)
        @functools.wraps(handler)
        async def handle(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            return handler(*args, **kwargs)

        return lambda *args, **kwargs: asyncio.run(handle(*args, **kwargs))


@pytest.fixture(params=[Blocking(), Awaited()], ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def queue() -> PersistentQueue[Any]:
    return PersistentQueue("jobs", store=MemoryQueueStore())


@pytest.fixture(autouse=True)
def no_watch_is_left() -> Iterator[None]:
    yield
    retire_watches()
