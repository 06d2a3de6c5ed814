"""Where stores are apart, an intent remembers a success until it is written everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from localqueue import MemoryQueueStore, TransactionalOutboxCommit, failpoints
from localqueue.commits.protocol import Done
from localqueue.idempotency import IdempotencyRecord, MemoryIdempotencyStore
from localqueue.stores.protocol import Settled
from localqueue.testing import ManualClock
from localqueue.testing.commit_contract import RESULT, Crash, Worker, succeed
from tests.unit.commits.phrases import effectively_once, leased


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


def _not_run(_: Any) -> Any:
    raise AssertionError("the handler was run again")
