"""TwoPhaseCommit: nobody commits before all have prepared."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from localqueue import (
    ConfigurationError,
    LeaseLost,
    MemoryQueueStore,
    SQLiteParticipant,
    SQLiteQueueStore,
    TwoPhaseCommit,
    WrongType,
)
from localqueue.idempotency import IdempotencyRecords
from localqueue.message import QueueMessage
from localqueue.outcome import Ack
from localqueue.results import MemoryResultStore
from localqueue.stores.protocol import Settled
from localqueue.testing import ManualClock
from localqueue.testing.commit_contract import RESULT, Worker, succeed
from tests.unit.commits.phrases import BusyStore, effectively_once, leased, put_and_lease


class Bank:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.prepared: set[str] = set()
        self.refuses = False
        self.unreachable = False

    def prepare(self, transaction: str, message: QueueMessage[Any], result: Any) -> None:
        if self.refuses:
            raise ValueError("no such account")
        self._tell("prepare", transaction)
        self.prepared.add(transaction)

    def commit(self, transaction: str) -> None:
        self._tell("commit", transaction)
        self.prepared.discard(transaction)

    def abort(self, transaction: str) -> None:
        self._tell("abort", transaction)
        self.prepared.discard(transaction)

    def in_doubt(self) -> list[str]:
        if self.unreachable:
            raise ConnectionError("the bank does not answer")
        return sorted(self.prepared)

    @property
    def calls(self) -> list[str]:
        return [what for what, _ in self.told]

    def _tell(self, what: str, transaction: str) -> None:
        if self.unreachable:
            raise ConnectionError("the bank does not answer")
        self.told.append((what, transaction))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> Iterator[MemoryQueueStore]:
    with MemoryQueueStore() as store:
        yield store


@pytest.fixture
def banks() -> list[Bank]:
    return [Bank(), Bank()]


@pytest.fixture
def worker(store: MemoryQueueStore, banks: list[Bank], clock: ManualClock) -> Worker:
    ledger = IdempotencyRecords.of(store)
    return Worker(effectively_once(store, ledger, TwoPhaseCommit(participants=banks), clock=clock))


def test_all_prepare_then_all_commit(worker: Worker, banks: list[Bank]) -> None:
    worker.queue.put("value", dedupe_key="key")

    assert worker.work(succeed) is Settled.DONE

    assert [bank.calls for bank in banks] == [["prepare", "commit"]] * 2
    assert len({transaction for bank in banks for _, transaction in bank.told}) == 1


def test_when_one_refuses_all_abort_and_the_delivery_failed(
    worker: Worker, banks: list[Bank]
) -> None:
    banks[1].refuses = True
    message = put_and_lease(worker)
    worker.commit.begin(message)

    with pytest.raises(ValueError, match="no such account"):
        worker.commit.success(message, RESULT)

    assert [bank.calls for bank in banks] == [["prepare", "abort"], ["abort"]]


def test_each_delivery_is_a_transaction_of_its_own(worker: Worker, banks: list[Bank]) -> None:
    worker.queue.put("value", dedupe_key="key")
    banks[1].refuses = True
    worker.work(succeed)
    banks[1].refuses = False

    worker.work(succeed)

    first, second = (banks[0].told[index][1] for index in (0, -1))
    assert first != second
    assert banks[0].calls == ["prepare", "abort", "abort", "prepare", "commit"]


def test_nobody_has_committed_before_the_ack(worker: Worker, banks: list[Bank]) -> None:
    message = put_and_lease(worker)
    worker.commit.begin(message)

    extras = worker.commit.success(message, RESULT)
    assert [bank.calls for bank in banks] == [["prepare"]] * 2

    worker._settle(message, Ack(), extras)
    worker.commit.settled(message)
    assert [bank.calls for bank in banks] == [["prepare", "commit"]] * 2


def test_a_participant_that_cannot_be_reached_is_told_later(
    worker: Worker, banks: list[Bank]
) -> None:
    message = put_and_lease(worker)
    worker.commit.begin(message)
    worker._settle(message, Ack(), worker.commit.success(message, RESULT))
    banks[1].unreachable = True

    worker.commit.settled(message)
    assert worker.recover() == 0

    banks[1].unreachable = False
    assert worker.recover() == 1
    assert [bank.calls[-1] for bank in banks] == ["commit", "commit"]
    assert worker.recover() == 0


def test_what_is_prepared_under_a_live_lease_is_left_alone(
    worker: Worker, banks: list[Bank], clock: ManualClock
) -> None:
    message = put_and_lease(worker)
    worker.commit.begin(message)
    worker.commit.success(message, RESULT)

    assert worker.recover() == 0
    clock.advance(31)
    assert worker.recover() == 1

    assert [bank.calls for bank in banks] == [["prepare", "abort"]] * 2


def test_of_a_lost_lease_the_delivery_says_so_itself(worker: Worker, banks: list[Bank]) -> None:
    message = put_and_lease(worker)
    worker.commit.begin(message)
    extras = worker.commit.success(message, RESULT)
    worker.queue.release(message)
    assert worker._settle(message, Ack(), extras) is Settled.STALE

    worker.commit.dropped(message)

    assert [bank.calls for bank in banks] == [["prepare", "abort"]] * 2


def test_transactions_of_another_coordinator_are_left_alone(
    worker: Worker, banks: list[Bank], clock: ManualClock
) -> None:
    with MemoryQueueStore() as elsewhere:
        ledger = IdempotencyRecords.of(elsewhere)
        policy = TwoPhaseCommit(participants=banks)
        other = Worker(effectively_once(elsewhere, ledger, policy, clock=clock))
        message = put_and_lease(other)
        other.commit.begin(message)
        other.commit.success(message, RESULT)
        banks[0].prepared |= {"somebody", "else:s:7", "a:b:c:d"}
        clock.advance(3600)

        assert worker.recover() == 0

        assert [bank.calls for bank in banks] == [["prepare"]] * 2


def test_one_participant_that_does_not_answer_does_not_hold_up_recovery(
    worker: Worker, banks: list[Bank], clock: ManualClock
) -> None:
    message = put_and_lease(worker)
    worker.commit.begin(message)
    worker.commit.success(message, RESULT)
    clock.advance(31)
    banks[0].unreachable = True

    worker.recover()

    assert banks[1].calls == ["prepare", "abort"]


def test_a_store_that_is_busy_is_no_error_for_what_recovery_does_again(
    banks: list[Bank], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with BusyStore() as store:
        policy = TwoPhaseCommit(participants=banks)
        worker = Worker(effectively_once(store, IdempotencyRecords.of(store), policy, clock=clock))
        lost, done = put_and_lease(worker, key="lost"), put_and_lease(worker, key="done")
        for message in (lost, done):
            worker.commit.begin(message)
        worker.commit.success(lost, RESULT)
        worker._settle(done, Ack(), worker.commit.success(done, RESULT))
        clock.advance(31)

        for busy in ("change_records", "scan_records", "read"):
            store.busy = {busy, "change_records"}
            worker.commit.settled(done)
            worker.commit.dropped(lost)
            assert worker.recover() == 0, busy
        assert not any("abort" in bank.calls for bank in banks), "it may still be decided"

        store.busy = set()
        assert worker.recover() == 2
        for bank in banks:
            assert bank.prepared == set()
    assert "tried again later" in caplog.text


def test_what_a_participant_refuses_is_told_although_the_store_is_busy(
    banks: list[Bank], clock: ManualClock
) -> None:
    with BusyStore() as store:
        policy = TwoPhaseCommit(MemoryResultStore(), participants=banks)
        worker = Worker(effectively_once(store, IdempotencyRecords.of(store), policy, clock=clock))
        message = put_and_lease(worker)
        worker.commit.begin(message)
        banks[1].refuses = True
        store.busy = {"change_records"}

        with pytest.raises(ValueError, match="no such account"):
            worker.commit.success(message, RESULT)


def test_without_a_ledger_a_delivery_that_is_over_prepares_nothing(
    store: MemoryQueueStore, banks: list[Bank], clock: ManualClock
) -> None:
    policy = TwoPhaseCommit(participants=banks)
    worker = Worker(effectively_once(store, None, policy, clock=clock))
    stale = put_and_lease(worker)
    worker.commit.begin(stale)
    clock.advance(31)
    assert worker.work(succeed) is Settled.DONE

    with pytest.raises(LeaseLost):
        worker.commit.success(stale, RESULT)

    assert [bank.calls for bank in banks] == [["prepare", "commit"]] * 2


def test_the_envelopes_of_both_phases_are_in_their_stores(store: MemoryQueueStore) -> None:
    with MemoryResultStore() as prepares, MemoryResultStore() as commits:
        policy = TwoPhaseCommit(prepares, commits)
        worker = Worker(effectively_once(store, IdempotencyRecords.of(store), policy))
        worker.queue.put("value", dedupe_key="key")
        worker.work(succeed)

        for phase, place in (("prepare", prepares), ("commit", commits)):
            envelope = place.load(f"{phase}:dedupe:jobs:key")
            assert envelope is not None
            assert (envelope["phase"], envelope["result"]) == (phase, RESULT)


def test_what_is_no_participant_is_refused() -> None:
    with pytest.raises(WrongType, match="in_doubt"):
        TwoPhaseCommit(participants=[object()])  # type: ignore[list-item]


# --- a SQLite file as participant -----------------------------------------------------------------
def pay(db: sqlite3.Connection, message: QueueMessage[Any], result: Any) -> None:
    db.execute("CREATE TABLE IF NOT EXISTS paid (value TEXT, by TEXT, UNIQUE (value))")
    db.execute("INSERT INTO paid VALUES (?, ?)", (message.value, result))


def rows(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT * FROM paid").fetchall()


MESSAGE: QueueMessage[Any] = QueueMessage("1" * 32, "rent", "jobs", dedupe_key="key")


def test_prepared_work_is_applied_once_however_often_it_is_committed(tmp_path: Path) -> None:
    path = tmp_path / "bank.sqlite3"
    SQLiteParticipant(path, pay).prepare("tx", MESSAGE, "me")
    assert SQLiteParticipant(path, pay).in_doubt() == ["tx"]

    for _ in range(2):
        SQLiteParticipant(path, pay).commit("tx")

    assert rows(path) == [("rent", "me")]
    assert SQLiteParticipant(path, pay).in_doubt() == []


def test_aborted_work_is_forgotten(tmp_path: Path) -> None:
    participant = SQLiteParticipant(tmp_path / "bank.sqlite3", pay)
    participant.prepare("tx", MESSAGE, "me")

    for _ in range(2):
        participant.abort("tx")
    participant.commit("tx")

    assert participant.in_doubt() == []
    with closing(sqlite3.connect(participant.path)) as db:
        assert db.execute("SELECT name FROM sqlite_master WHERE name = 'paid'").fetchall() == []


def test_what_apply_refuses_is_refused_when_it_is_prepared(tmp_path: Path) -> None:
    participant = SQLiteParticipant(tmp_path / "bank.sqlite3", pay)
    participant.prepare("tx-1", MESSAGE, "me")
    participant.commit("tx-1")

    with pytest.raises(sqlite3.IntegrityError):
        participant.prepare("tx-2", MESSAGE, "me")

    assert participant.in_doubt() == []


def test_a_participant_that_was_never_used_makes_no_file(tmp_path: Path) -> None:
    participant = SQLiteParticipant(tmp_path / "bank.sqlite3", pay)

    assert participant.in_doubt() == []
    assert not participant.path.exists()


def test_the_file_of_a_queue_is_no_participant(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    with SQLiteQueueStore(path) as store:
        store.configure("jobs", {}, now=0.0)

    with pytest.raises(ConfigurationError, match="file of its own"):
        SQLiteParticipant(path, pay).prepare("tx", MESSAGE, "me")


def test_a_delivery_goes_through_real_files(tmp_path: Path, store: MemoryQueueStore) -> None:
    files = [SQLiteParticipant(tmp_path / name, pay) for name in ("bank", "shop")]
    policy = TwoPhaseCommit(participants=files)
    worker = Worker(effectively_once(store, IdempotencyRecords.of(store), policy))
    worker.queue.put("rent", dedupe_key="key")
    worker.work(lambda _: "me")
    worker.queue.put("rent", dedupe_key="another key")
    worker.work(lambda _: "me")

    assert [rows(file.path) for file in files] == [[("rent", "me")]] * 2
    assert leased(worker).last_error is not None
