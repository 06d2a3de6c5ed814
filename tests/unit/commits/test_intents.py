"""Where stores are apart, an intent remembers a success until it is written everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from localqueue import LeaseLost, MemoryQueueStore, TransactionalOutboxCommit, failpoints
from localqueue.commits.protocol import Done, Wait
from localqueue.idempotency import IdempotencyRecord, IdempotencyRecords, MemoryIdempotencyStore
from localqueue.outcome import Ack
from localqueue.results import MemoryResultStore
from localqueue.stores.protocol import Settled
from localqueue.stores.records import Record
from localqueue.testing import ManualClock
from localqueue.testing.commit_contract import RESULT, Crash, Worker, succeed
from tests.unit.commits.phrases import effectively_once, leased

ENVELOPE = "outbox:dedupe:jobs:key"


class Flaky(MemoryIdempotencyStore):
    """A ledger that cannot be reached now and then."""

    unreachable = False

    def replace(self, key: str, present: Any, record: IdempotencyRecord | None) -> bool:
        if self.unreachable and record is not None and record.is_done:
            raise ConnectionError("the ledger does not answer")
        return super().replace(key, present, record)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ledger() -> Iterator[Flaky]:
    with Flaky() as ledger:
        yield ledger


@pytest.fixture
def sent() -> list[str]:
    return []


@pytest.fixture
def worker(ledger: Flaky, sent: list[str], clock: ManualClock) -> Iterator[Worker]:
    with MemoryQueueStore() as store:
        policy = TransactionalOutboxCommit(relay=lambda it: sent.append(it["dedupe_key"]))
        worker = Worker(effectively_once(store, ledger, policy, clock=clock))
        worker.queue.put("value", dedupe_key="key")
        yield worker


def die_at(point: str, worker: Worker) -> None:
    def reached(name: str) -> None:
        if name == point:
            raise Crash(point)

    with failpoints.listening(reached), pytest.raises(Crash):
        worker.work(succeed)


def is_done(ledger: Flaky) -> bool:
    record = ledger.load("jobs:key")
    return record is not None and record.is_done


@pytest.mark.parametrize("point", ["commit.after-intent", "commit.after-ledger"])
def test_a_redelivery_writes_what_is_missing_and_does_not_run_the_handler(
    worker: Worker, ledger: Flaky, sent: list[str], clock: ManualClock, point: str
) -> None:
    die_at(point, worker)
    clock.advance(31)

    assert worker.work(_not_run) is Settled.DONE

    assert is_done(ledger)
    assert sent == ["key"]


def test_a_store_that_cannot_be_reached_fails_the_delivery_and_the_next_goes_on(
    worker: Worker, ledger: Flaky, sent: list[str]
) -> None:
    ledger.unreachable = True
    worker.work(succeed)
    assert (is_done(ledger), sent, worker.queue.qsize()) == (False, [], 1)

    ledger.unreachable = False
    message = leased(worker)
    begun = worker.commit.begin(message)

    assert isinstance(begun, Done)
    assert begun.result == RESULT
    assert is_done(ledger)


@pytest.mark.parametrize("end", ["dead letter", "removed"])
def test_the_success_of_a_message_that_will_not_come_again_is_finished_by_recovery(
    worker: Worker, ledger: Flaky, sent: list[str], clock: ManualClock, end: str
) -> None:
    die_at("commit.after-intent", worker)
    clock.advance(31)
    assert worker.recover() == 0, "the redelivery is still to come"
    if end == "dead letter":
        worker.queue.dead_letter(leased(worker), "it killed its worker too often")
    else:
        worker.queue.purge()

    ledger.unreachable = True
    assert worker.recover() == 0
    ledger.unreachable = False
    assert worker.recover() >= 1
    clock.advance(3600)
    worker.recover()

    assert is_done(ledger)
    assert sent == ["key"]
    assert worker.recover() == 0


def test_a_delivery_whose_lease_is_over_does_not_go_on_with_it(
    worker: Worker, ledger: Flaky, clock: ManualClock
) -> None:
    die_at("commit.after-intent", worker)
    clock.advance(31)
    stale = leased(worker)
    clock.advance(31)
    message = leased(worker)

    with pytest.raises(LeaseLost):
        worker.commit.begin(stale)

    assert not is_done(ledger)
    assert isinstance(worker.commit.begin(message), Done)


@pytest.mark.parametrize("final", [False, True])
def test_what_fails_after_its_success_was_decided_has_not_failed(
    worker: Worker, ledger: Flaky, sent: list[str], clock: ManualClock, final: bool
) -> None:
    ledger.unreachable = True
    worker.work(succeed, final=final)
    ledger.unreachable = False
    record = ledger.load("jobs:key")
    assert record is not None
    assert record.status == "pending", "another queue with this ledger would do it again"

    if final:
        assert worker.recover() == 1
        clock.advance(3600)
        worker.recover()
    else:
        worker.work(_not_run)

    assert is_done(ledger)
    assert sent == ["key"]


def test_recovery_leaves_alone_what_was_acknowledged_since_it_looked(
    clock: ManualClock,
) -> None:
    with Looking() as store, MemoryResultStore() as outbox:
        ledger, policy = IdempotencyRecords.of(store), TransactionalOutboxCommit(outbox)
        worker = Worker(effectively_once(store, ledger, policy, clock=clock))
        worker.queue.put("value", dedupe_key="key")
        message = leased(worker)
        worker.commit.begin(message)
        extras = worker.commit.success(message, RESULT)
        other = Worker(effectively_once(store, ledger, policy, clock=clock))

        def acknowledge() -> None:
            assert worker._settle(message, Ack(), extras) is Settled.DONE
            worker.commit.settled(message)
            assert outbox.load(ENVELOPE) is not None
            outbox.delete(ENVELOPE)  # by whoever sends it

        store.after_scan = acknowledge

        assert other.recover() == 0
        assert outbox.load(ENVELOPE) is None, "it would be sent again"


def test_a_success_that_somebody_recovers_is_left_to_them(
    worker: Worker, ledger: Flaky, clock: ManualClock
) -> None:
    die_at("commit.after-intent", worker)
    clock.advance(31)
    worker.queue.dead_letter(leased(worker), "it killed its worker too often")
    with failpoints.listening(_dying), pytest.raises(Crash):
        worker.recover()

    assert worker.recover() == 0, "somebody is at it for a minute"
    worker.queue.requeue_dead(worker.queue.dead_letters()[0])
    message = leased(worker)
    assert worker.commit.begin(message) == Wait(5.0)
    clock.advance(61)
    worker.queue.release(message)

    assert worker.work(_not_run) is Settled.DONE
    assert is_done(ledger)


def test_without_a_ledger_another_message_of_the_key_does_not_wipe_out_a_success(
    clock: ManualClock,
) -> None:
    with MemoryQueueStore() as store, MemoryResultStore() as outbox:
        policy = TransactionalOutboxCommit(outbox)
        worker = Worker(effectively_once(store, None, policy, clock=clock))
        first = worker.queue.put("first", dedupe_key="key")
        die_at("commit.after-intent", worker)
        worker.queue.purge()
        second = worker.queue.put("second", dedupe_key="key")

        assert worker.work(lambda _: "another result") is Settled.DONE
        assert worker.recover() == 1

        sent = [outbox.load(f"{ENVELOPE}:{message.id}") for message in (first, second)]
        assert [envelope and envelope["result"] for envelope in sent] == [RESULT, "another result"]


class Looking(MemoryQueueStore):
    """Something happens between a look at its intents and what follows from it."""

    after_scan: Callable[[], None] | None = None

    def scan_records(self, kind: str, **options: Any) -> list[Record]:
        found = super().scan_records(kind, **options)
        if kind == "intent" and self.after_scan is not None:
            self.after_scan()
        return found


def _dying(point: str) -> None:
    if point == "commit.after-result":
        raise Crash(point)


def _not_run(_: Any) -> Any:
    raise AssertionError("the handler was run again")
