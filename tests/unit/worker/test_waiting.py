"""A worker that waits is woken by whatever makes a message ready."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Empty
from typing import Any

import pytest

from localqueue import (
    AsyncNotification,
    InProcessNotification,
    MemoryQueueStore,
    NoNotification,
    PersistentQueue,
    SQLiteQueueStore,
)
from localqueue.worker.lease_watch import retire_watches

Queue = PersistentQueue[Any]
SIMPLE = [
    "enqueue",
    "dequeue",
    "get",
    "ack",
    "release",
    "dead_letter",
    "qsize",
    "stats",
    "record_worker_heartbeat",
    "dead_letters",
    "requeue_dead",
    "prune_dead_letters",
    "count_dead_letters_older_than",
    "empty",
    "purge",
]


class OnlySimpleVerbs:
    """A custom store: it wakes nobody, extends no lease and keeps no records."""

    def __init__(self) -> None:
        store = MemoryQueueStore()
        for verb in SIMPLE:
            setattr(self, verb, getattr(store, verb))


def soon(action: Any) -> threading.Timer:
    timer = threading.Timer(0.05, action)
    timer.start()
    return timer


def test_a_put_wakes_it(kind: Any, queue: Queue) -> None:
    handle = kind.worker(queue, lambda value: value)
    began = time.monotonic()
    soon(lambda: queue.put("job"))

    assert handle() == "job"
    assert time.monotonic() - began < 0.9  # before it would have looked by itself


def test_a_put_of_another_process_wakes_it(kind: Any, tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    with SQLiteQueueStore(path) as store:
        queue: Queue = PersistentQueue("jobs", store=store)
        handle = kind.worker(queue, lambda value: value)
        script = (
            "import sys; from localqueue import *;"
            "PersistentQueue('jobs', store=SQLiteQueueStore(sys.argv[1])).put('job')"
        )
        process = subprocess.Popen([sys.executable, "-c", script, str(path)])

        assert handle() == "job"

        assert process.wait(60) == 0
        retire_watches()


def test_a_delayed_message_is_handled_at_its_time(kind: Any, queue: Queue) -> None:
    began = time.monotonic()
    queue.put("job", delay=0.2)

    assert kind.worker(queue, lambda value: value)() == "job"
    assert 0.2 <= time.monotonic() - began < 0.9


def test_a_lease_that_expires_is_taken_over(kind: Any) -> None:
    queue: Queue = PersistentQueue("jobs", store=MemoryQueueStore(), lease_timeout=0.2)
    queue.put("job")
    queue.get_message()

    assert kind.worker(queue, lambda value: value)() == "job"


@pytest.mark.parametrize("make", [InProcessNotification, AsyncNotification])
def test_a_notification_wakes_a_worker_whose_store_cannot(kind: Any, make: Any) -> None:
    if kind.name == "sync" and make is AsyncNotification:
        pytest.skip("a thread cannot wait for it")
    notification = make()
    producer: Queue = PersistentQueue(
        "jobs", store=OnlySimpleVerbs(), notification_policy=notification
    )
    consumer: Queue = PersistentQueue("jobs", store=producer.store)
    handle = kind.worker(consumer, lambda value: value, notification_policy=notification)
    began = time.monotonic()
    soon(lambda: producer.put("job"))

    assert handle() == "job"
    assert time.monotonic() - began < 0.9


def test_the_queues_own_notification_is_used_unless_another_is_given(kind: Any) -> None:
    queue: Queue = PersistentQueue(
        "jobs", store=OnlySimpleVerbs(), notification_policy=InProcessNotification()
    )
    handle = kind.worker(queue, lambda value: value, notification_policy=NoNotification())
    other = kind.worker(queue, lambda value: value)
    began = time.monotonic()
    soon(lambda: queue.put("job"))

    assert other() == "job"
    assert time.monotonic() - began < 0.9
    queue.put("job")
    assert handle() == "job"


def test_a_custom_store_serves_workers_as_well_as_it_can(kind: Any) -> None:
    queue: Queue = PersistentQueue("jobs", store=OnlySimpleVerbs())
    put = queue.put("job")
    calls: list[str] = []

    def work(value: str) -> str:
        calls.append(value)
        if len(calls) < 3:
            raise KeyError
        return value

    handle = kind.worker(
        queue, work, max_tries=2, wait=lambda state: 0, dead_letter_on_failure=False
    )
    with pytest.raises(KeyError):
        handle()

    assert handle() == "job"
    assert queue.inspect(put.id) is None
    with pytest.raises(Empty):
        queue.get_nowait()
