"""The ledger is a lock: a key belongs to one delivery while that one has its lease."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from localqueue import (
    LeaseLost,
    MemoryQueueStore,
    PersistentQueue,
    TransactionalOutboxCommit,
    failpoints,
)
from localqueue.commits.protocol import Done, Run, Wait
from localqueue.commits.turns import turns_at
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


@pytest.mark.parametrize("place", ["shared", "apart", "the user's own", "none"])
def test_a_delivery_whose_lease_is_over_does_not_take_the_key_from_the_one_that_has_it(
    store: MemoryQueueStore, clock: ManualClock, place: str
) -> None:
    ledgers = {
        "shared": IdempotencyRecords.of(store),
        "apart": MemoryIdempotencyStore(),
        "the user's own": OwnLedger(),
    }
    policy = TransactionalOutboxCommit()
    worker = Worker(effectively_once(store, ledgers.get(place), policy, clock=clock))
    stale = put_and_lease(worker)
    clock.advance(LEASE)
    message = leased(worker)
    assert worker.commit.begin(message) == Run()

    with pytest.raises(LeaseLost, match=stale.id):
        worker.commit.begin(stale)

    extras = worker.commit.success(message, "in time")
    assert worker._settle(message, Ack(), extras) is Settled.DONE


def test_a_delivery_that_loses_its_lease_while_it_takes_the_key_does_not_get_it(
    store: MemoryQueueStore, clock: ManualClock
) -> None:
    ledger = Meddled()
    worker = Worker(effectively_once(store, ledger, clock=clock))
    stale = put_and_lease(worker)

    def somebody_else_begins() -> None:
        clock.advance(LEASE)
        assert worker.commit.begin(leased(worker)) == Run()

    ledger.before_replacing = somebody_else_begins
    with pytest.raises(LeaseLost):
        worker.commit.begin(stale)


def test_a_delivery_that_loses_its_lease_while_it_commits_does_not_end_the_work_of_another(
    store: MemoryQueueStore, ledger: MemoryIdempotencyStore, clock: ManualClock
) -> None:
    worker = Worker(effectively_once(store, ledger, clock=clock))
    stale = put_and_lease(worker)
    worker.commit.begin(stale)

    def somebody_else_begins(point: str) -> None:
        if point == "commit.after-effects":
            clock.advance(LEASE)
            assert worker.commit.begin(leased(worker)) == Run()

    with failpoints.listening(somebody_else_begins), pytest.raises(LeaseLost):
        worker.commit.success(stale, "late")

    found = ledger.load("jobs:key")
    assert found is not None
    assert found.status == "pending"


def test_a_message_that_was_removed_does_not_begin(worker: Worker) -> None:
    message = put_and_lease(worker)
    worker.queue.purge()

    with pytest.raises(LeaseLost):
        worker.commit.begin(message)


def test_a_delivery_may_begin_again(worker: Worker) -> None:
    message = put_and_lease(worker)

    assert [worker.commit.begin(message) for _ in range(2)] == [Run(), Run()]


def test_a_key_is_held_for_as_long_as_the_lease_of_its_message(
    worker: Worker, store: MemoryQueueStore, clock: ManualClock
) -> None:
    first = put_and_lease(worker)
    worker.commit.begin(first)
    second = _another_message_of_the_key(worker)

    assert worker.commit.begin(second) == Wait(5.0)
    worker.queue.extend(first, 3 * LEASE)
    worker.queue.extend(second, 6 * LEASE)
    clock.advance(2 * LEASE - 4)
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
    there.queue.extend(second, 3 * LEASE)

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


# --- a ledger of the user's own -------------------------------------------------------------------
class OwnLedger:
    """The methods that are asked for, and nothing else: what is saved last stays."""

    __slots__ = ("records",)  # so it cannot be referenced weakly

    def __init__(self) -> None:
        self.records: dict[str, IdempotencyRecord] = {}

    def load(self, key: str) -> IdempotencyRecord | None:
        return self.records.get(key)

    def save(self, key: str, record: IdempotencyRecord) -> None:
        self.records[key] = record

    def delete(self, key: str) -> None:
        self.records.pop(key, None)

    def prune_completed(self, *, older_than: float, now: float) -> int:
        return 0

    def count_completed_older_than(self, *, older_than: float, now: float) -> int:
        return 0


class SlowLedger(OwnLedger):
    """A save of the thread ``slow`` waits until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.slow: threading.Thread | None = None
        self.is_saving, self.go_on = threading.Event(), threading.Event()

    def save(self, key: str, record: IdempotencyRecord) -> None:
        if threading.current_thread() is self.slow:
            self.is_saving.set()
            assert self.go_on.wait(30)
        super().save(key, record)


class Meddled(MemoryIdempotencyStore):
    """Something happens between reading a record and replacing it."""

    before_replacing: Callable[[], None] | None = None

    def replace(self, key: str, present: Any, record: IdempotencyRecord | None) -> bool:
        meddle, self.before_replacing = self.before_replacing, None
        if meddle is not None:
            meddle()
        return super().replace(key, present, record)


@pytest.mark.parametrize("end", ["succeeded", "failed"])
def test_a_heartbeat_does_not_make_work_pending_that_has_ended(
    store: MemoryQueueStore, end: str
) -> None:
    ledger = SlowLedger()
    worker = Worker(effectively_once(store, ledger))
    # Another commit for the same ledger: two workers of a process have one each.
    heart = Worker(effectively_once(store, ledger)).commit
    message = put_and_lease(worker)
    worker.commit.begin(message)
    beat = threading.Thread(target=heart.extended, args=(message, LEASE))
    if end == "succeeded":
        ending = threading.Thread(target=worker.commit.success, args=(message, "result"))
    else:
        ending = threading.Thread(
            target=worker.commit.failure, args=(message, ValueError("no"), False)
        )
    ledger.slow = beat
    beat.start()
    assert ledger.is_saving.wait(30)
    ending.start()
    # Who does not wait for the heartbeat ends in this time, and the heartbeat has the last word.
    ending.join(0.2)
    ledger.go_on.set()
    for thread in (beat, ending):
        thread.join(30)

    assert ledger.records["jobs:key"].status == end


def test_a_slow_save_of_one_key_does_not_hold_up_the_others(store: MemoryQueueStore) -> None:
    ledger = SlowLedger()
    worker = Worker(effectively_once(store, ledger))
    turns, names = turns_at(ledger), map(str, range(1_000))
    another = next(key for key in names if turns.of(f"jobs:{key}") is not turns.of("jobs:key"))
    message, other = put_and_lease(worker), put_and_lease(worker, key=another)
    ledger.slow = threading.Thread(target=worker.commit.begin, args=(message,))
    ledger.slow.start()
    assert ledger.is_saving.wait(30)

    assert worker.commit.begin(other) == Run()

    ledger.go_on.set()
    ledger.slow.join(30)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_does_not_wait_for_a_thread_that_it_does_not_have(
    store: MemoryQueueStore,
) -> None:
    ledger = SlowLedger()
    worker = Worker(effectively_once(store, ledger))
    message = put_and_lease(worker)
    ledger.slow = threading.Thread(target=worker.commit.begin, args=(message,))
    ledger.slow.start()
    assert ledger.is_saving.wait(30)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        child = os.fork()
    if child == 0:
        signal.alarm(10)  # ends the child if it waits
        worker.commit.extended(message, LEASE)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    ledger.go_on.set()
    ledger.slow.join(30)

    assert status == 0


def test_a_heartbeat_that_cannot_reach_the_ledger_is_no_error(
    store: MemoryQueueStore, caplog: pytest.LogCaptureFixture
) -> None:
    class Away(OwnLedger):
        def save(self, key: str, record: IdempotencyRecord) -> None:
            if key in self.records:
                raise ConnectionError("the ledger does not answer")
            super().save(key, record)

    worker = Worker(effectively_once(store, Away()))
    message = put_and_lease(worker)
    worker.commit.begin(message)

    worker.commit.extended(message, LEASE)

    assert "the ledger does not answer" in caplog.text


def test_a_failure_is_noted_although_a_heartbeat_came_in_between(
    store: MemoryQueueStore,
) -> None:
    ledger = Meddled()
    worker = Worker(effectively_once(store, ledger))
    message = put_and_lease(worker)
    worker.commit.begin(message)
    ledger.before_replacing = lambda: worker.commit.extended(message, LEASE)

    worker.commit.failure(message, ValueError("no"), False)

    found = ledger.load("jobs:key")
    assert found is not None
    assert found.status == "failed"


def _another_message_of_the_key(worker: Worker) -> Any:
    """The store itself never holds two, so this one only says so."""
    worker.queue.put("value", dedupe_key="another")
    return replace(leased(worker), dedupe_key="key")


def test_a_key_that_is_done_is_skipped_whatever_the_value_and_that_is_logged(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    worker.queue.put("value", dedupe_key="key")
    worker.work(succeed)
    message = put_and_lease(worker, "another value")

    with caplog.at_level("INFO", logger="localqueue.commits"):
        assert isinstance(worker.commit.begin(message), Done)

    (line,) = caplog.messages
    assert message.id in line
    assert "without its handler" in line
    assert "'key'" in line
