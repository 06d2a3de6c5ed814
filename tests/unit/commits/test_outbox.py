"""TransactionalOutboxCommit: the envelope is written with the ack, and sent at least once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from localqueue import MemoryQueueStore, TransactionalOutboxCommit, failpoints
from localqueue.commits import author
from localqueue.commits.envelopes import outbox_envelopes
from localqueue.commits.outbox import PATIENCE
from localqueue.errors import ConfigurationError
from localqueue.idempotency import IdempotencyRecords
from localqueue.outcome import Ack
from localqueue.results import MemoryResultStore, ResultRecords
from localqueue.stores.protocol import Settled
from localqueue.testing import ManualClock
from localqueue.testing.commit_contract import Crash, Worker, succeed
from tests.unit.commits.phrases import NO_RESULT, BusyStore, effectively_once, put_and_lease

ENVELOPE_KEY = "outbox:dedupe:jobs:key"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> Iterator[MemoryQueueStore]:
    with MemoryQueueStore() as store:
        yield store


def worker_with(
    store: MemoryQueueStore, policy: TransactionalOutboxCommit, clock: ManualClock
) -> Worker:
    ledger = IdempotencyRecords.of(store)
    return Worker(effectively_once(store, ledger, policy, results=NO_RESULT, clock=clock))


def settle(worker: Worker, *, key: str = "key") -> Any:
    """A success, acknowledged; the worker dies before it sends."""
    message = put_and_lease(worker, key=key)
    worker.commit.begin(message)
    extras = worker.commit.success(message, {"paid": 5})
    assert worker._settle(message, Ack(), extras) is Settled.DONE
    return message


def test_the_relay_gets_the_envelope_and_it_is_removed(
    store: MemoryQueueStore, clock: ManualClock
) -> None:
    sent: list[dict[str, Any]] = []
    worker = worker_with(store, TransactionalOutboxCommit(relay=sent.append), clock)
    message = worker.queue.put("value", dedupe_key="key")

    worker.work(succeed)

    assert sent == [
        {
            "queue": "jobs",
            "message_id": message.id,
            "dedupe_key": "key",
            "result_key": None,
            "result": {"paid": 5},
        }
    ]
    assert ResultRecords.of(store).load(ENVELOPE_KEY) is None
    assert worker.recover() == 0


def test_without_a_relay_the_envelope_stays_for_somebody_else(
    store: MemoryQueueStore, clock: ManualClock
) -> None:
    with MemoryResultStore() as outbox:
        for given in (None, outbox):
            worker = worker_with(store, TransactionalOutboxCommit(given), clock)
            key = "key" if given is None else "key-2"
            worker.queue.put("value", dedupe_key=key)

            worker.work(succeed)

            place = ResultRecords.of(store) if given is None else outbox
            envelope = place.load(f"outbox:dedupe:jobs:{key}")
            assert envelope is not None
            assert envelope["result"] == {"paid": 5}


def test_a_relay_that_raises_is_called_again_later(
    store: MemoryQueueStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[str] = []

    def relay(envelope: dict[str, Any]) -> None:
        sent.append(envelope["dedupe_key"])
        if len(sent) == 1:
            raise ConnectionError("nobody is there")

    worker = worker_with(store, TransactionalOutboxCommit(relay=relay), clock)
    worker.queue.put("value", dedupe_key="key")
    with caplog.at_level(logging.WARNING):
        assert worker.work(succeed) is Settled.DONE

    assert "not relayed" in caplog.text
    assert worker.recover() == 1
    assert sent == ["key", "key"]
    assert worker.recover() == 0


def test_one_envelope_that_cannot_be_sent_does_not_hold_up_the_others(
    store: MemoryQueueStore, clock: ManualClock
) -> None:
    sent: list[str] = []

    def relay(envelope: dict[str, Any]) -> None:
        if envelope["dedupe_key"] == "a":
            raise ConnectionError("not this one")
        sent.append(envelope["dedupe_key"])

    worker = worker_with(store, TransactionalOutboxCommit(relay=relay), clock)
    for key in "abc":
        settle(worker, key=key)
    clock.advance(PATIENCE + 1)

    assert worker.recover() == 2
    assert sent == ["b", "c"]


def test_an_envelope_is_left_to_the_worker_that_is_about_to_send_it(
    store: MemoryQueueStore, clock: ManualClock
) -> None:
    sent: list[dict[str, Any]] = []
    policy = TransactionalOutboxCommit(relay=sent.append)
    worker, other = worker_with(store, policy, clock), worker_with(store, policy, clock)
    message = settle(worker)

    assert other.recover() == 0
    worker.commit.settled(message)
    assert (len(sent), other.recover()) == (1, 0)


def test_an_envelope_of_a_process_that_is_gone_is_sent_at_once(
    store: MemoryQueueStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[dict[str, Any]] = []
    worker = worker_with(store, TransactionalOutboxCommit(relay=sent.append), clock)
    boot = author.this_process().rsplit(" ", 2)[0]
    with monkeypatch.context() as patch:
        # The first process of a boot started at another time than this says.
        patch.setattr("localqueue.commits.outbox.this_process", lambda: f"{boot} 1 -5")
        settle(worker)

    assert worker.recover() == 1
    assert len(sent) == 1


def test_an_envelope_of_another_host_is_sent_when_patience_is_over(
    store: MemoryQueueStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[dict[str, Any]] = []
    worker = worker_with(store, TransactionalOutboxCommit(relay=sent.append), clock)
    with monkeypatch.context() as patch:
        patch.setattr("localqueue.commits.outbox.this_process", lambda: "another boot 1 5")
        settle(worker)

    assert worker.recover() == 0
    clock.advance(PATIENCE + 1)
    assert worker.recover() == 1
    assert len(sent) == 1


def test_without_a_ledger_each_message_of_a_key_has_its_envelope(
    store: MemoryQueueStore, clock: ManualClock
) -> None:
    is_up, sent = False, []

    def relay(envelope: dict[str, Any]) -> None:
        if not is_up:
            raise ConnectionError("nobody is there")
        sent.append((envelope["dedupe_key"], envelope["result"]))

    policy = TransactionalOutboxCommit(relay=relay)
    worker = Worker(effectively_once(store, None, policy, results=NO_RESULT, clock=clock))
    for value in ("first", "second"):
        worker.queue.put(value, dedupe_key="key")
        worker.work(lambda message: message.value)

    is_up = True
    assert worker.recover() == 2

    assert sorted(sent) == [("key", "first"), ("key", "second")]
    assert worker.recover() == 0


def test_an_envelope_that_took_the_place_of_the_sent_one_is_not_deleted_unsent(
    store: MemoryQueueStore, clock: ManualClock
) -> None:
    sent: list[Any] = []
    with MemoryResultStore() as outbox:

        def relay(envelope: dict[str, Any]) -> None:
            sent.append(envelope["result"])
            if len(sent) == 1:
                # The key was forgotten, and its work is done anew while this one is sent.
                IdempotencyRecords.of(store).delete("jobs:key")
                worker.queue.put("value", dedupe_key="key")
                message = worker.lease()
                assert message is not None
                worker.commit.begin(message)
                extras = worker.commit.success(message, "second")
                assert worker._settle(message, Ack(), extras) is Settled.DONE

        worker = worker_with(store, TransactionalOutboxCommit(outbox, relay), clock)
        worker.queue.put("value", dedupe_key="key")
        worker.work(lambda _: "first")
        clock.advance(PATIENCE + 1)
        worker.recover()

        assert sent == ["first", "second"]
        assert outbox.load(ENVELOPE_KEY) is None
        assert worker.recover() == 0


def test_a_sent_envelope_is_deleted_and_not_sent_again_after_a_crash(
    store: MemoryQueueStore, clock: ManualClock
) -> None:
    sent: list[Any] = []
    with MemoryResultStore() as outbox:
        policy = TransactionalOutboxCommit(outbox, sent.append)
        worker = worker_with(store, policy, clock)
        worker.queue.put("value", dedupe_key="key")

        def die(point: str) -> None:
            if point == "outbox.after-sent":
                raise Crash(point)

        with failpoints.listening(die), pytest.raises(Crash):
            worker.work(succeed)
        assert outbox.load(ENVELOPE_KEY) is not None

        clock.advance(PATIENCE + 1)
        assert worker_with(store, policy, clock).recover() == 1

        assert outbox.load(ENVELOPE_KEY) is None
        assert len(sent) == 1


def test_a_store_that_is_busy_after_the_ack_is_no_error(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[Any] = []
    with BusyStore() as store:
        worker = worker_with(store, TransactionalOutboxCommit(relay=sent.append), clock)
        message = settle(worker)
        store.busy = {"load_record", "scan_records"}

        worker.commit.settled(message)
        assert worker.recover() == 0
        store.busy = {"load_record"}
        assert worker.recover() == 0
        store.busy = set()
        assert worker.recover() == 1

    assert len(sent) == 1
    assert "another process held it" in caplog.text


def test_this_process_is_not_gone_and_one_that_ended_is() -> None:
    import subprocess
    import sys

    this = author.this_process()
    boot = this.rsplit(" ", 2)[0]
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()

    assert not author.is_gone(this)
    assert author.is_gone(f"{boot} {child.pid} 1")


def test_what_is_in_the_outbox_can_be_listed_and_removed(
    store: MemoryQueueStore, clock: ManualClock
) -> None:
    with MemoryResultStore() as outbox:
        for given in (None, outbox):
            worker = worker_with(store, TransactionalOutboxCommit(given), clock)
            keys = [f"{given is None}-{number:03}" for number in range(201)]
            for key in keys:
                worker.queue.put("value", dedupe_key=key)
                worker.work(succeed)

            listed = list(outbox_envelopes(worker.queue))

            assert [envelope["dedupe_key"] for _, envelope in listed] == keys
            for key, _ in listed:
                (given or ResultRecords.of(store)).delete(key)
            assert list(outbox_envelopes(worker.queue)) == []


def test_the_outbox_of_another_queue_is_not_listed(
    store: MemoryQueueStore, clock: ManualClock
) -> None:
    worker = worker_with(store, TransactionalOutboxCommit(), clock)
    other = effectively_once(store, IdempotencyRecords.of(store), name="jobs2", clock=clock)
    worker.queue.put("value", dedupe_key="key")
    worker.work(succeed)

    assert [key for key, _ in outbox_envelopes(worker.queue)] == [ENVELOPE_KEY]
    assert list(outbox_envelopes(other)) == []


def test_an_outbox_of_an_unknown_kind_cannot_be_listed(
    store: MemoryQueueStore, clock: ManualClock
) -> None:
    class Own:
        def load(self, key: str) -> Any: ...
        def save(self, key: str, value: Any) -> None: ...
        def delete(self, key: str) -> None: ...

    worker = worker_with(store, TransactionalOutboxCommit(Own()), clock)

    with pytest.raises(ConfigurationError, match="Own, which cannot be listed"):
        outbox_envelopes(worker.queue)
