"""The ledger is a lock: a key belongs to one delivery while that one has its lease."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from localqueue import LeaseLost, MemoryQueueStore, PersistentQueue
from localqueue.commits.protocol import Done, Run, Wait
from localqueue.idempotency import (
    IdempotencyRecord,
    IdempotencyRecords,
    MemoryIdempotencyStore,
)
from localqueue.outcome import Ack
from localqueue.stores.protocol import Settled
from localqueue.testing import ManualClock
from localqueue.testing.commit_contract import Worker, fail, succeed
from tests.unit.commits.phrases import effectively_once, leased, put_and_lease

LEASE = 30.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> Iterator[MemoryQueueStore]:
    with MemoryQueueStore() as store:
        yield store


@pytest.fixture
def another_store() -> Iterator[MemoryQueueStore]:
    with MemoryQueueStore() as store:
        yield store


@pytest.fixture
def ledger() -> Iterator[MemoryIdempotencyStore]:
    with MemoryIdempotencyStore() as ledger:
        yield ledger


@pytest.fixture
def worker(store: MemoryQueueStore, clock: ManualClock) -> Worker:
    """Its ledger is in the store of the queue."""
    return Worker(effectively_once(store, IdempotencyRecords.of(store), clock=clock))


def of(worker: Worker, key: str = "jobs:key") -> IdempotencyRecord:
    found = IdempotencyRecords.of(worker.queue.store).load(key)
    assert found is not None
    return found


# --- what is written ------------------------------------------------------------------------------
def test_before_the_handler_runs_the_key_is_pending_under_its_lease(worker: Worker) -> None:
    message = put_and_lease(worker)

    assert worker.commit.begin(message) == Run()

    record = of(worker)
    assert record.status == "pending"
    assert record.metadata["queue"] == "jobs"
    assert record.metadata["message_id"] == message.id
    assert record.metadata["lease"] == {"token": message.token, "until": message.leased_until}


def test_a_success_is_complete_with_its_result(worker: Worker, clock: ManualClock) -> None:
    first_seen_at = clock.wall()
    worker.queue.put("value", dedupe_key="key")
    clock.advance(5)

    worker.work(lambda _: {"a": 1})

    record = of(worker)
    assert (record.status, record.first_seen_at) == ("succeeded", first_seen_at + 5)
    assert (record.completed_at, record.result_key) == (clock.wall(), "inline")
    assert record.metadata["result"] == {"a": 1}
    assert "lease" not in record.metadata


def test_a_failure_is_noted_with_its_error_and_frees_the_key(worker: Worker) -> None:
    worker.queue.put("value", dedupe_key="key")

    worker.work(fail)

    record = of(worker)
    assert record.status == "failed"
    assert record.metadata["last_error"]["type"] == "HandlerFailed"
    assert "lease" not in record.metadata
    assert worker.work(succeed) is Settled.DONE
    assert of(worker).status == "succeeded"


def test_a_message_without_a_key_is_known_by_its_id(
    store: MemoryQueueStore, worker: Worker
) -> None:
    plain: PersistentQueue[Any] = PersistentQueue("jobs", store=store, clock=ManualClock())
    message = plain.put("value")

    worker.work(succeed)

    assert of(worker, f"jobs:{message.id}").status == "succeeded"


def test_a_key_as_long_as_a_key_can_be_is_kept(worker: Worker) -> None:
    keys = ["k" * 999 + end for end in "ab"]
    for key in keys:
        worker.queue.put("value", dedupe_key=key)

    assert [worker.work(succeed) for _ in keys] == [Settled.DONE] * 2

    for key in keys:
        worker.queue.put("again", dedupe_key=key)
        assert isinstance(worker.commit.begin(leased(worker)), Done)


# --- scopes ---------------------------------------------------------------------------------------
def test_keys_of_different_queues_do_not_meet(store: MemoryQueueStore) -> None:
    ledger = IdempotencyRecords.of(store)
    for name in ("jobs", "others"):
        worker = Worker(effectively_once(store, ledger, name=name))
        worker.queue.put("value", dedupe_key="key")

        assert worker.work(succeed) is Settled.DONE
        assert worker.results == [{"paid": 5}]


def test_a_record_that_the_user_saved_under_the_bare_key_counts(worker: Worker) -> None:
    done = IdempotencyRecord("succeeded", 1.0, 2.0, "inline", {"result": "from before"})
    IdempotencyRecords.of(worker.queue.store).save("key", done)
    message = put_and_lease(worker)

    assert worker.commit.begin(message) == Done("from before")


@pytest.mark.parametrize("status", ["pending", "failed"])
def test_a_record_of_the_user_that_is_not_done_holds_nobody_up(worker: Worker, status: Any) -> None:
    IdempotencyRecords.of(worker.queue.store).save("key", IdempotencyRecord(status, 1.0))
    message = put_and_lease(worker)

    assert worker.commit.begin(message) == Run()


def test_what_another_queue_did_is_not_taken_for_a_bare_key(store: MemoryQueueStore) -> None:
    ledger = IdempotencyRecords.of(store)
    other = Worker(effectively_once(store, ledger, name="other"))
    other.queue.put("value", dedupe_key="key")
    other.work(succeed)
    worker = Worker(effectively_once(store, ledger))
    message = put_and_lease(worker, key="other:key")

    assert worker.commit.begin(message) == Run()


# --- two deliveries of one key --------------------------------------------------------------------
def test_a_later_delivery_of_the_message_takes_the_key_at_once(
    worker: Worker, clock: ManualClock
) -> None:
    stale = put_and_lease(worker)
    worker.commit.begin(stale)
    clock.advance(LEASE)
    message = leased(worker)

    assert worker.commit.begin(message) == Run()

    with pytest.raises(LeaseLost, match="'key'"):
        worker.commit.success(stale, "late")
    extras = worker.commit.success(message, "in time")
    assert worker._settle(message, Ack(), extras) is Settled.DONE
    assert of(worker).metadata["result"] == "in time"


def test_a_key_is_held_for_as_long_as_the_lease_of_its_message(
    worker: Worker, store: MemoryQueueStore, clock: ManualClock
) -> None:
    first = put_and_lease(worker)
    worker.commit.begin(first)
    second = _another_message_of_the_key(worker)

    assert worker.commit.begin(second) == Wait(5.0)
    worker.queue.extend(first, 3 * LEASE)
    clock.advance(2 * LEASE - 4)
    worker.queue.extend(second)
    assert worker.commit.begin(second) == Wait(5.0)

    clock.advance(LEASE + 1)
    assert worker.commit.begin(second) == Wait(3.0)
    clock.advance(4)
    assert worker.commit.begin(second) == Run()


def test_a_key_is_free_when_the_lease_of_its_message_was_ended(worker: Worker) -> None:
    first = put_and_lease(worker)
    worker.commit.begin(first)
    second = _another_message_of_the_key(worker)
    assert isinstance(worker.commit.begin(second), Wait)

    worker.queue.release(first)

    assert worker.commit.begin(second) == Run()


def test_between_stores_a_key_is_held_until_a_deadline_that_heartbeats_move(
    store: MemoryQueueStore,
    another_store: MemoryQueueStore,
    ledger: MemoryIdempotencyStore,
    clock: ManualClock,
) -> None:
    here = Worker(effectively_once(store, ledger, clock=clock))
    there = Worker(effectively_once(another_store, ledger, clock=clock))
    first, second = put_and_lease(here), put_and_lease(there)
    assert here.commit.begin(first) == Run()

    clock.advance(LEASE - 2)
    assert there.commit.begin(second) == Wait(2.0)
    here.commit.extended(first, LEASE)
    clock.advance(LEASE - 1)
    assert there.commit.begin(second) == Wait(1.0)
    clock.advance(1)
    assert there.commit.begin(second) == Run()

    with pytest.raises(LeaseLost):
        here.commit.success(first, "late")


def test_what_was_done_in_another_store_is_done(
    store: MemoryQueueStore, another_store: MemoryQueueStore, ledger: MemoryIdempotencyStore
) -> None:
    here = Worker(effectively_once(store, ledger))
    here.queue.put("value", dedupe_key="key")
    here.work(succeed)
    there = Worker(effectively_once(another_store, ledger))

    assert there.commit.begin(put_and_lease(there)) == Done({"paid": 5})


def test_of_many_that_begin_at_once_one_runs(
    ledger: MemoryIdempotencyStore,
) -> None:
    stores = [MemoryQueueStore() for _ in range(4)]
    workers = [Worker(effectively_once(store, ledger)) for store in stores]
    messages = [put_and_lease(worker) for worker in workers]
    start = threading.Barrier(len(workers))
    answers: list[object] = []

    def begin(number: int) -> None:
        start.wait()
        answers.append(workers[number].commit.begin(messages[number]))

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(len(workers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()

    assert sorted(type(answer).__name__ for answer in answers) == ["Run", "Wait", "Wait", "Wait"]


def test_a_failure_does_not_undo_the_success_of_another_delivery(
    worker: Worker, clock: ManualClock
) -> None:
    stale = put_and_lease(worker)
    worker.commit.begin(stale)
    clock.advance(LEASE)
    worker.work(succeed)

    extras = worker.commit.failure(stale, ValueError("late"), True)

    assert extras.records == ()
    assert of(worker).status == "succeeded"


def _another_message_of_the_key(worker: Worker) -> Any:
    """The store itself never holds two, so this one only says so."""
    worker.queue.put("value", dedupe_key="another")
    return replace(leased(worker), dedupe_key="key")
