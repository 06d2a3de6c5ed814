"""What was removed when it was leased cannot go back: only a handler can have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from localqueue.policies import AtMostOnceDelivery
from localqueue.queue import PersistentQueue
from localqueue.resilience.rate_limiter import RateLimit, RateLimiter
from localqueue.stores.memory import MemoryQueueStore
from localqueue.workers import Summary, Worker
from tests.unit.workers.phrases import Queue, Stage, eventually

Handler = Callable[[Any], Any]


class StopsAfterLease(MemoryQueueStore):
    """Somebody stops the worker the moment it has leased."""

    def __init__(self) -> None:
        super().__init__()
        self.stop: Callable[[], object] = bool

    def lease(self, request: Any, *, now: Any) -> Any:
        leased = super().lease(request, now=now)
        if leased:
            self.stop()
        return leased


class StaleLimiter(RateLimiter):
    """Says what was available before others took it."""

    def available(self) -> int:
        return 3


def at_most_once(stage: Stage) -> Queue:
    return stage.queue(delivery_policy=AtMostOnceDelivery())


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("kind", ["thread", "asyncio"])
def test_a_stop_loses_nothing_that_no_handler_saw(kind: str, concurrency: int) -> None:
    seen: list[int] = []

    async def handler(value: int) -> None:
        seen.append(value)

    call: Handler = handler if kind == "asyncio" else seen.append
    store = StopsAfterLease()
    with PersistentQueue[int]("q", store=store, delivery_policy=AtMostOnceDelivery()) as queue:
        queue.put_many(range(10))
        worker = Worker(queue, call, concurrency=concurrency)
        store.stop = worker.stop

        summary = worker.run()

        assert summary == Summary(done=len(seen))
        assert seen
        assert queue.stats().total == 10 - len(seen)


def test_what_a_shared_limit_does_not_allow_yet_is_kept(stage: Stage) -> None:
    queue = at_most_once(stage)
    queue.put_many(range(4))
    seen: list[int] = []
    limiter = StaleLimiter(RateLimit(1, per=0.03))

    summary = Worker(queue, seen.append, concurrency=3, rate_limit=limiter).run(until_empty=True)

    assert summary == Summary(done=4)
    assert sorted(seen) == [0, 1, 2, 3]


def test_what_is_kept_for_its_turn_begins_before_a_stop_would_lose_it(stage: Stage) -> None:
    queue = at_most_once(stage)
    queue.put_many(range(4))
    seen: list[int] = []
    limiter = StaleLimiter(RateLimit(1, per=3600.0))

    worker = Worker(queue, seen.append, concurrency=3, rate_limit=limiter).start()
    eventually(lambda: len(seen) == 1 and queue.stats().total < 3, "nothing was kept")
    worker.stop()

    assert worker.join(20)
    assert worker.summary == Summary(done=len(seen))
    assert queue.stats().total == 4 - len(seen)
