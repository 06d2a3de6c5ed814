"""What runs in the processes that are killed: a worker whose handlers keep a diary."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time
from pathlib import Path
from typing import Any

from localqueue.idempotency.records import IdempotencyRecords
from localqueue.policies.delivery import (
    AtLeastOnceDelivery,
    AtMostOnceDelivery,
    EffectivelyOnceDelivery,
)
from localqueue.policies.results import ReturnStoredResult
from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.workers.context import current_message
from localqueue.workers.liveness import Liveness
from localqueue.workers.worker import Worker
from tests.crash.defects import plant
from tests.crash.diary import Entry, tell
from tests.crash.follow_up import WithFollowUp
from tests.faults.nursery import say

LEASE = 60.0
"""No lease ends by itself in a test: what ends one early is the death of its worker."""
SHORT_LEASE = 1.0
CONCURRENCY = 2
EFFECTS = "effects"
"""The queue of the follow-ups."""

Queue = PersistentQueue[Any]


def open_queue(path: str, durability: Any, delivery: str = "at-least-once", **given: Any) -> Queue:
    store = SQLiteQueueStore(path, durability=durability, timeout=60.0)
    options: dict[str, Any] = {
        "lease_timeout": LEASE,
        "delivery_policy": _delivery_policy(delivery, store),
    }
    return PersistentQueue("jobs", store=store, **options | given)


def _delivery_policy(delivery: str, store: SQLiteQueueStore) -> Any:
    if delivery == "at-least-once":
        return AtLeastOnceDelivery()
    if delivery == "at-most-once":
        return AtMostOnceDelivery()
    commit = WithFollowUp(EFFECTS, too_early=delivery == "effects before the ack")
    return EffectivelyOnceDelivery(IdempotencyRecords.of(store), ReturnStoredResult(), commit)


def job(diary: Path, chance: float, longest: float) -> dict[str, Any]:
    """A message whose handler takes a part of the longest time."""
    return {"diary": str(diary), "takes": chance * longest}


def work(
    path: str,
    diary: str,
    durability: str,
    kind: Any,
    delivery: str,
    worker_id: str,
    defect: str | None = None,
    until_empty: bool = False,
) -> None:
    """Until it is killed, or asked to stop."""
    plant(defect)
    note_beginnings(diary)
    # What aborts here does so on purpose.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    queue = open_queue(path, durability, delivery)
    concurrency = 1 if until_empty else CONCURRENCY
    handler = handle_async if kind == "asyncio" else handle
    worker = Worker(queue, handler, kind=kind, concurrency=concurrency, worker_id=worker_id)
    worker.run(until_empty=until_empty)
    queue.store.close()


def handle(value: dict[str, Any]) -> int:
    """The effect is in the middle: a kill may come before it or after it."""
    abort_if_poisoned(value)
    time.sleep(value["takes"] / 2)
    have_effect(value)
    time.sleep(value["takes"] / 2)
    return current_message().attempt


async def handle_async(value: dict[str, Any]) -> int:
    """The same on a loop, which others have while this one waits."""
    abort_if_poisoned(value)
    await asyncio.sleep(value["takes"] / 2)
    have_effect(value)
    await asyncio.sleep(value["takes"] / 2)
    return current_message().attempt


def abort_if_poisoned(value: dict[str, Any]) -> None:
    if value.get("poison"):
        os.abort()


def have_effect(value: dict[str, Any]) -> None:
    current = current_message()
    message = current.message
    tell(value["diary"], Entry("did", message.id, current.attempt, message.crashes))


def note_beginnings(diary: str) -> None:
    """Before a worker says in its sign of life that it runs a message, the diary has it."""
    begin = Liveness.begin

    def begin_and_tell(liveness: Liveness, slot: int, message_id: str) -> None:
        tell(diary, Entry("begun", message_id))
        begin(liveness, slot, message_id)

    Liveness.begin = begin_and_tell  # type: ignore[method-assign,assignment]


def work_and_stop(path: str, kind: Any, defect: str | None = None) -> None:
    """A worker that is stopped by a handler, goes on later, and says at the end what it did."""
    plant(defect)
    queue = open_queue(path, "relaxed", lease_timeout=SHORT_LEASE)
    handler = stop_the_worker_async if kind == "asyncio" else stop_the_worker
    worker = Worker(queue, handler, kind=kind, worker_id="stopped")
    say(os.getpid())
    worker.run()
    say(worker.summary.as_dict())
    queue.store.close()


def stop_the_worker(value: dict[str, Any]) -> None:
    if value["job"] == "stop":
        # Not in the middle of a transaction: others would have to wait for its lock.
        time.sleep(SHORT_LEASE / 8)
        os.kill(os.getppid() if value["kind"] == "process" else os.getpid(), signal.SIGSTOP)
    say(value["job"])


async def stop_the_worker_async(value: dict[str, Any]) -> None:
    stop_the_worker(value)
