"""Handlers run beside the producer, under leases, by the rule of every worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localqueue import (
    MemoryQueueStore,
    PersistentQueue,
    PublishSubscribeRouting,
    QueueMessage,
    SQLiteQueueStore,
    StaticFanoutSubscriptions,
    ThreadedDispatcher,
    WorkerPoolDispatcher,
)
from localqueue.errors import ConfigurationError, InvalidArgument

PATIENCE = 10.0
Message = QueueMessage[Any]


@pytest.fixture
def store() -> Iterator[MemoryQueueStore]:
    store = MemoryQueueStore()
    yield store
    store.close()


def test_a_put_does_not_wait_for_its_handler(store: MemoryQueueStore) -> None:
    inside, finish = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        inside.set()
        finish.wait(PATIENCE)

    with ThreadedDispatcher([handle]) as dispatcher:
        queue: PersistentQueue[str] = PersistentQueue(
            "jobs", store=store, dispatch_policy=dispatcher
        )
        queue.put("job")
        assert inside.wait(PATIENCE)
        held = queue.stats().inflight
        finish.set()

    assert held == 1
    assert queue.stats().total == 0


def test_a_pool_handles_messages_side_by_side(store: MemoryQueueStore) -> None:
    together, done = threading.Barrier(3), threading.Semaphore(0)

    def handle(message: Message) -> None:
        together.wait(PATIENCE)
        done.release()

    with WorkerPoolDispatcher([handle], workers=3) as dispatcher:
        queue: PersistentQueue[int] = PersistentQueue(
            "jobs", store=store, dispatch_policy=dispatcher
        )
        queue.put_many([1, 2, 3])
        for _ in range(3):
            assert done.acquire(timeout=PATIENCE)

    assert queue.stats().total == 0


def test_a_failing_handler_is_tried_again_and_its_message_is_a_dead_letter_in_the_end(
    store: MemoryQueueStore,
) -> None:
    attempts: list[int] = []
    last = threading.Event()

    def fail(message: Message) -> None:
        attempts.append(message.attempts)
        if len(attempts) == 3:
            last.set()
        raise LookupError("no")

    with ThreadedDispatcher([fail], max_tries=3, backoff=0.0) as dispatcher:
        queue: PersistentQueue[str] = PersistentQueue(
            "jobs", store=store, dispatch_policy=dispatcher
        )
        queue.put("job")
        assert last.wait(PATIENCE)

    (dead,) = queue.dead_letters()
    assert attempts == [1, 2, 3]
    assert dead.last_error is not None
    assert dead.last_error["type"] == "LookupError"


def test_the_subscribers_of_a_topic_each_have_their_handlers(store: MemoryQueueStore) -> None:
    seen: list[str] = []
    both = threading.Event()

    def handle(message: Message) -> None:
        seen.append(message.queue)
        if len(seen) == 2:
            both.set()

    with ThreadedDispatcher([handle]) as dispatcher:
        topic: PersistentQueue[str] = PersistentQueue(
            "news",
            store=store,
            routing_policy=PublishSubscribeRouting(),
            subscription_policy=StaticFanoutSubscriptions(("mail", "log")),
            dispatch_policy=dispatcher,
        )
        topic.put("hello")
        assert both.wait(PATIENCE)

    assert sorted(seen) == ["news.log", "news.mail"]


def test_closing_the_queue_ends_its_handlers_first(tmp_path: Path) -> None:
    inside, finish = threading.Event(), threading.Event()
    ended: list[str] = []

    def handle(message: Message) -> None:
        inside.set()
        finish.wait(PATIENCE)
        ended.append(message.id)

    dispatcher = ThreadedDispatcher([handle])
    path = tmp_path / "jobs.sqlite3"
    queue: PersistentQueue[str] = PersistentQueue(
        "jobs", store_path=path, dispatch_policy=dispatcher
    )
    queue.put("job")
    assert inside.wait(PATIENCE)
    closing = threading.Thread(target=queue.close)
    closing.start()
    finish.set()
    closing.join(PATIENCE)

    with SQLiteQueueStore(path) as store:
        left = PersistentQueue[str]("jobs", store=store).stats().total
    assert len(ended) == 1
    assert left == 0
    assert not dispatcher.closed


def test_a_hung_handler_is_given_up_after_the_time_to_drain(store: MemoryQueueStore) -> None:
    inside, finish = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        inside.set()
        finish.wait(60)

    dispatcher = ThreadedDispatcher([handle], drain_timeout=0.05)
    queue: PersistentQueue[str] = PersistentQueue("jobs", store=store, dispatch_policy=dispatcher)
    queue.put("job")
    try:
        assert inside.wait(PATIENCE)
        assert dispatcher.close(PATIENCE)
        assert queue.stats().ready == 1
    finally:
        finish.set()


def test_working_off_and_then_closing_leaves_nothing_that_was_leased_ahead(
    store: MemoryQueueStore,
) -> None:
    for name in ("one", "two", "three"):
        dispatcher = ThreadedDispatcher([lambda message: time.sleep(0.004)])
        queue: PersistentQueue[int] = PersistentQueue(name, store=store, dispatch_policy=dispatcher)
        queue.put_many(range(150))

        queue.dispatch_pending()
        dispatcher.close()

        assert queue.stats().total == 0


def test_there_is_nothing_to_work_off_in_a_paused_queue(store: MemoryQueueStore) -> None:
    producer: PersistentQueue[str] = PersistentQueue("jobs", store=store)
    producer.put("job")
    producer.pause()
    handled: list[int] = []

    with ThreadedDispatcher([lambda message: None]) as dispatcher:
        queue: PersistentQueue[str] = PersistentQueue(
            "jobs", store=store, dispatch_policy=dispatcher
        )
        working = threading.Thread(target=lambda: handled.append(queue.dispatch_pending()))
        working.daemon = True
        working.start()
        working.join(PATIENCE)

    assert handled == [0]
    assert producer.stats().ready == 1


def test_one_dispatcher_serves_several_queues(store: MemoryQueueStore) -> None:
    seen: list[str] = []
    both = threading.Event()

    def handle(message: Message) -> None:
        seen.append(message.queue)
        if len(seen) == 2:
            both.set()

    with ThreadedDispatcher([handle]) as dispatcher:
        queues = [
            PersistentQueue[str](name, store=store, dispatch_policy=dispatcher)
            for name in ("one", "two")
        ]
        for queue in queues:
            queue.put("job")
        assert both.wait(PATIENCE)

    assert sorted(seen) == ["one", "two"]


def test_options_that_no_worker_takes_are_refused_when_the_queue_is_built(
    store: MemoryQueueStore,
) -> None:
    with pytest.raises(TypeError, match="colour"):
        PersistentQueue(
            "jobs", store=store, dispatch_policy=ThreadedDispatcher([print], colour="red")
        )
    with pytest.raises(InvalidArgument, match="workers"):
        WorkerPoolDispatcher([print], workers=0)


def test_coroutine_functions_are_refused() -> None:
    async def handle(message: Message) -> None: ...

    with pytest.raises(ConfigurationError, match="asyncio"):
        ThreadedDispatcher([handle])


def test_values_that_are_equal_describe_the_same() -> None:
    assert ThreadedDispatcher([print]) == ThreadedDispatcher((print,))
    assert WorkerPoolDispatcher([print], 2) != WorkerPoolDispatcher([print], 3)
    assert WorkerPoolDispatcher([print], 2).as_dict() == {
        "type": "worker-pool",
        "dispatches": True,
        "dispatches_on_put": True,
        "handler_count": 1,
        "workers": 2,
    }
