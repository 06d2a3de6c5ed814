"""Delivery promises: at most once, effectively once; and what listeners hear."""

from __future__ import annotations

from typing import Any

import pytest
from tenacity import RetryCallState, wait_fixed, wait_none

from localqueue import (
    AtMostOnceDelivery,
    EffectivelyOnceDelivery,
    MemoryQueueStore,
    PersistentQueue,
    ReturnStoredResult,
)
from localqueue.idempotency import IdempotencyRecord, MemoryIdempotencyStore
from localqueue.telemetry import Event, Metrics, Retried

Queue = PersistentQueue[Any]

# The promises are the subject here; that a store in memory forgets them is not.
pytestmark = pytest.mark.filterwarnings("ignore::localqueue.CompatibilityWarning")


def test_at_most_once_a_handler_runs_once_and_a_failure_loses_the_message(kind: Any) -> None:
    queue: Queue = PersistentQueue(
        "jobs", store=MemoryQueueStore(), delivery_policy=AtMostOnceDelivery()
    )
    queue.put("bad")
    queue.put("good")
    calls: list[str] = []

    def work(value: str) -> str:
        calls.append(value)
        assert queue.stats().inflight == 0  # gone before the handler begins
        if value == "bad":
            raise KeyError
        return value

    handle = kind.worker(queue, work, max_tries=5, wait=wait_none())
    with pytest.raises(KeyError):
        handle()

    assert handle() == "good"
    assert calls == ["bad", "good"]
    assert queue.stats().total == 0


def effectively_once(ledger: Any) -> Queue:
    return PersistentQueue(
        "jobs",
        store=MemoryQueueStore(),
        delivery_policy=EffectivelyOnceDelivery(
            idempotency_store=ledger, result_policy=ReturnStoredResult()
        ),
    )


def test_what_succeeded_before_is_not_run_again_and_its_result_is_returned(kind: Any) -> None:
    queue = effectively_once(MemoryIdempotencyStore())
    calls: list[int] = []

    def work(value: int) -> int:
        calls.append(value)
        return value * 2

    handle = kind.worker(queue, work)
    queue.put(21, dedupe_key="a")
    assert handle() == 42
    queue.put(21, dedupe_key="a")

    assert handle() == 42
    assert calls == [21]
    assert queue.stats().total == 0


def test_a_record_under_the_raw_key_counts_as_done(kind: Any) -> None:
    ledger = MemoryIdempotencyStore()
    ledger.save("a", IdempotencyRecord(status="succeeded", first_seen_at=1.0, completed_at=2.0))
    queue = effectively_once(ledger)
    queue.put(21, dedupe_key="a")

    assert kind.worker(queue, lambda value: pytest.fail("it ran"))() is None
    assert queue.stats().total == 0


def test_a_failure_is_in_the_ledger_and_the_next_delivery_runs(kind: Any) -> None:
    queue = effectively_once(MemoryIdempotencyStore())
    queue.put(21, dedupe_key="a")
    calls: list[int] = []

    def work(value: int) -> int:
        calls.append(value)
        if len(calls) < 3:
            raise KeyError
        return value

    handle = kind.worker(queue, work, max_tries=1, wait=wait_none(), dead_letter_on_failure=False)
    for _ in range(2):
        with pytest.raises(KeyError):
            handle()

    assert handle() == 21
    assert queue.stats().total == 0


def test_a_result_that_cannot_be_kept_fails_the_message(kind: Any) -> None:
    queue = effectively_once(MemoryIdempotencyStore())
    put = queue.put(21, dedupe_key="a")
    calls: list[int] = []

    def work(value: int) -> object:
        calls.append(value)
        return object()

    with pytest.raises(Exception, match="object"):
        kind.worker(queue, work, max_tries=1)()

    dead = queue.inspect(put.id)
    assert dead is not None
    assert (dead.state, dead.failures, calls) == ("dead", 1, [21])


def test_listeners_hear_each_try_and_how_the_message_ended(kind: Any, queue: Queue) -> None:
    heard: list[Event] = []
    metrics = Metrics()
    queue.listen(heard.append)
    queue.listen(metrics)
    calls: list[int] = []

    def work(value: int) -> None:
        calls.append(value)
        if len(calls) < 3:
            raise KeyError

    put = queue.put(1)
    kind.worker(queue, work, wait=wait_fixed(0.001))()

    assert [event.kind for event in heard] == [
        "enqueued", "leased",
        "handler_started", "handler_ended", "retried",
        "handler_started", "handler_ended", "retried",
        "handler_started", "handler_ended", "acked",
    ]  # fmt: skip
    retried = [event for event in heard if isinstance(event, Retried)]
    assert [(e.message_id, e.attempt, e.delay, e.error_type, e.ran) for e in retried] == [
        (put.id, 1, 0.001, "KeyError", None)
    ] * 2
    assert metrics.snapshot()[queue.name].errors == {("retried", "KeyError"): 2}


def test_listeners_hear_of_a_try_before_the_pause_that_follows_it(kind: Any, queue: Queue) -> None:
    order: list[str] = []
    queue.listen(lambda event: order.append(event.kind))
    queue.put(1)

    def work(value: int) -> None:
        if "retried" not in order:
            raise KeyError

    def before_sleep(state: RetryCallState) -> None:
        order.append("pause")

    kind.worker(queue, work, wait=wait_none(), before_sleep=before_sleep)()

    assert order[order.index("retried") + 1] == "pause"
