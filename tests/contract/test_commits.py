"""Every commit policy of the library keeps the contract, with its stores together and apart."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from localqueue import (
    CompatibilityWarning,
    EffectivelyOnceDelivery,
    LocalAtomicCommit,
    LocalQueueError,
    MemoryQueueStore,
    NoResultPolicy,
    PersistentQueue,
    ReturnStoredResult,
    SagaCommit,
    SagaStep,
    SQLiteParticipant,
    SQLiteQueueStore,
    TransactionalOutboxCommit,
    TwoPhaseCommit,
)
from localqueue.idempotency import IdempotencyRecord, IdempotencyRecords, SQLiteIdempotencyStore
from localqueue.message import QueueMessage
from localqueue.policies import CommitPolicy
from localqueue.results import ResultRecords, ResultStore, SQLiteResultStore
from localqueue.stores.protocol import QueueStore
from localqueue.stores.records import RecordChange
from localqueue.testing import ManualClock
from localqueue.testing.commit_contract import (
    KEY,
    RESULT,
    CommitCase,
    CommitContract,
    Crash,
    SecondCrashes,
)


class Together(CommitCase):
    """Everything in the store of the queue: one transaction."""

    ledger_place = "queue"
    result_place = "queue"

    @pytest.fixture(autouse=True)
    def _prepared(self) -> Iterator[None]:
        with self.prepared():
            yield

    @contextmanager
    def prepared(self) -> Iterator[None]:
        self.places: dict[tuple[Path, str], QueueStore] = {}
        self.happenings: dict[Path, list[str]] = {}
        with warnings.catch_warnings():
            # What is in memory is gone with the process: here a crash does not end it.
            warnings.simplefilter("ignore", CompatibilityWarning)
            yield
        for store in self.places.values():
            store.close()

    def open(self, folder: Path, clock: ManualClock) -> PersistentQueue[Any]:
        ledger = IdempotencyRecords.of(self.place(folder, self.ledger_place))
        results = ResultRecords.of(self.place(folder, self.result_place))
        delivery = EffectivelyOnceDelivery(
            ledger, ReturnStoredResult(results), self.policy(folder, results)
        )
        store = self.place(folder, "queue")
        return PersistentQueue("jobs", store=store, clock=clock, delivery_policy=delivery)

    def close(self, queue: PersistentQueue[Any]) -> None: ...

    def policy(self, folder: Path, results: ResultStore) -> CommitPolicy:
        raise NotImplementedError

    def place(self, folder: Path, name: str) -> QueueStore:
        return self.places.setdefault((folder, name), MemoryQueueStore())

    def effects(self, folder: Path) -> list[str]:
        return self.happenings.get(folder, [])

    def happened(self, folder: Path, key: str) -> None:
        self.happenings.setdefault(folder, []).append(key)


class Apart(Together):
    """A store for the queue, one for the ledger, and one for results and envelopes."""

    ledger_place = "ledger"
    result_place = "results"


class OnlyTheLedgerApart(Together):
    ledger_place = "ledger"


class OnlyTheResultsApart(Together):
    result_place = "results"


# --- LocalAtomicCommit ----------------------------------------------------------------------------
class LocalAtomic:
    def policy(self, folder: Path, results: ResultStore) -> CommitPolicy:
        return LocalAtomicCommit()

    def effects(self, folder: Path) -> list[str]:
        """The effect is the result itself."""
        results = ResultRecords.of(self.place(folder, self.result_place))  # type: ignore[attr-defined]
        return [KEY] if results.load(f"dedupe:jobs:{KEY}") == RESULT else []


class TestLocalAtomicTogether(LocalAtomic, Together, CommitContract): ...


class TestLocalAtomicApart(LocalAtomic, Apart, CommitContract): ...


class TestLocalAtomicWithItsLedgerApart(LocalAtomic, OnlyTheLedgerApart, CommitContract): ...


class TestLocalAtomicWithItsResultsApart(LocalAtomic, OnlyTheResultsApart, CommitContract): ...


# --- TransactionalOutboxCommit --------------------------------------------------------------------
class Outbox:
    effects_may_repeat = True

    def policy(self, folder: Path, results: ResultStore) -> TransactionalOutboxCommit:
        def relay(envelope: dict[str, Any]) -> None:
            assert envelope["result"] == RESULT
            self.happened(folder, envelope["dedupe_key"])  # type: ignore[attr-defined]

        return TransactionalOutboxCommit(results, relay)


class TestOutboxTogether(Outbox, Together, CommitContract): ...


class TestOutboxApart(Outbox, Apart, CommitContract): ...


class TestOutboxWithItsLedgerApart(Outbox, OnlyTheLedgerApart, CommitContract): ...


class TestOutboxWithItsEnvelopesApart(Outbox, OnlyTheResultsApart, CommitContract): ...


# --- TwoPhaseCommit -------------------------------------------------------------------------------
class TwoPhase:
    """Two files of the user; an effect is a row in each, which nothing makes unique."""

    def policy(self, folder: Path, results: ResultStore) -> CommitPolicy:
        participants = [SQLiteParticipant(folder / name, _add_row) for name in ("bank", "shop")]
        return TwoPhaseCommit(results, results, participants)

    def effects(self, folder: Path) -> list[str]:
        bank, shop = (_rows(folder / name) for name in ("bank", "shop"))
        assert bank == shop, "one participant has committed, the other has not"
        return bank

    def left_over(self, queue: PersistentQueue[Any]) -> list[str]:
        policy = queue.delivery_policy.commit_policy  # type: ignore[attr-defined]
        in_doubt = [tx for participant in policy.participants for tx in participant.in_doubt()]
        return super().left_over(queue) + in_doubt  # type: ignore[misc,no-any-return]


class TestTwoPhaseTogether(TwoPhase, Together, CommitContract): ...


class TestTwoPhaseApart(TwoPhase, Apart, CommitContract): ...


class TestTwoPhaseWithItsLedgerApart(TwoPhase, OnlyTheLedgerApart, CommitContract): ...


class TestTwoPhaseWithItsEnvelopesApart(TwoPhase, OnlyTheResultsApart, CommitContract): ...


def _add_row(db: sqlite3.Connection, message: QueueMessage[Any], result: Any) -> None:
    assert result == RESULT
    db.execute("CREATE TABLE IF NOT EXISTS paid (key TEXT)")
    db.execute("INSERT INTO paid VALUES (?)", (message.dedupe_key,))


def _rows(path: Path) -> list[str]:
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as db:
        tables = db.execute("SELECT name FROM sqlite_master WHERE name = 'paid'").fetchall()
        return [key for (key,) in db.execute("SELECT key FROM paid")] if tables else []


# --- SagaCommit -----------------------------------------------------------------------------------
class Saga:
    """Two steps; each recognises what it has done by the key, as steps have to."""

    def policy(self, folder: Path, results: ResultStore) -> CommitPolicy:
        return SagaCommit(results, [self.step(folder, name) for name in ("reserve", "charge")])

    def step(self, folder: Path, name: str) -> SagaStep:
        def action(message: QueueMessage[Any], result: Any) -> None:
            assert result == RESULT
            self._standing(folder).add((name, message.dedupe_key))

        def compensation(message: QueueMessage[Any], result: Any) -> None:
            assert (message.value, result) == ("value", RESULT)
            self._standing(folder).discard((name, message.dedupe_key))

        return SagaStep(name, action, compensation)

    def effects(self, folder: Path) -> list[str]:
        standing = self._standing(folder)
        assert len(standing) in (0, 2), f"of the saga only {standing} stands"
        return sorted({key for _, key in standing})

    def _standing(self, folder: Path) -> set[tuple[str, Any]]:
        stands: dict[Path, set[tuple[str, Any]]] = self.__dict__.setdefault("stands", {})
        return stands.setdefault(folder, set())


class TestSagaTogether(Saga, Together, CommitContract): ...


class TestSagaApart(Saga, Apart, CommitContract): ...


class TestSagaWithItsLedgerApart(Saga, OnlyTheLedgerApart, CommitContract): ...


class TestSagaWithItsEnvelopesApart(Saga, OnlyTheResultsApart, CommitContract): ...


# --- other ledgers and stores ---------------------------------------------------------------------
class TestWithNothingButALedger(Outbox, Together, CommitContract):
    """Results are in the ledger, envelopes in the queue's own store."""

    def open(self, folder: Path, clock: ManualClock) -> PersistentQueue[Any]:
        store = self.place(folder, "queue")
        relay = self.policy(folder, ResultRecords.of(store)).relay
        policy = TransactionalOutboxCommit(relay=relay)
        ledger = IdempotencyRecords.of(store)
        delivery = EffectivelyOnceDelivery(ledger, ReturnStoredResult(), policy)
        return PersistentQueue("jobs", store=store, clock=clock, delivery_policy=delivery)


class TestInOneFile(Outbox, Together, CommitContract):
    """Three objects on the file of the queue are known to be one store."""

    def open(self, folder: Path, clock: ManualClock) -> PersistentQueue[Any]:
        path = folder / "queue.sqlite3"
        store = SQLiteQueueStore(path, durability="relaxed")
        ledger, results = SQLiteIdempotencyStore(path), SQLiteResultStore(path)
        for number, opened in enumerate((store, ledger.store, results.store)):
            self.places[folder, f"{len(self.places)}-{number}"] = opened
        delivery = EffectivelyOnceDelivery(
            ledger, ReturnStoredResult(results), self.policy(folder, results)
        )
        return PersistentQueue("jobs", store=store, clock=clock, delivery_policy=delivery)


class DictLedger:
    """The five methods, and nothing else."""

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


class TestOwnLedgerObject(Outbox, Together, CommitContract):
    """A ledger of the user's own, without compare-and-set; results are not kept."""

    returns_results = False

    def open(self, folder: Path, clock: ManualClock) -> PersistentQueue[Any]:
        ledgers: dict[Path, DictLedger] = self.__dict__.setdefault("ledgers", {})
        ledger, store = ledgers.setdefault(folder, DictLedger()), self.place(folder, "queue")
        policy = self.policy(folder, ResultRecords.of(store))
        delivery = EffectivelyOnceDelivery(ledger, NoResultPolicy(), policy)
        return PersistentQueue("jobs", store=store, clock=clock, delivery_policy=delivery)


# --- without a ledger -----------------------------------------------------------------------------
class WithoutALedger(Together):
    """The work of a message takes effect; that of its key may come again."""

    recognises_repetitions = False

    def open(self, folder: Path, clock: ManualClock) -> PersistentQueue[Any]:
        results = ResultRecords.of(self.place(folder, self.result_place))
        policy = self.policy(folder, results)
        delivery = EffectivelyOnceDelivery(None, ReturnStoredResult(results), policy)
        store = self.place(folder, "queue")
        return PersistentQueue("jobs", store=store, clock=clock, delivery_policy=delivery)


class WithoutALedgerApart(WithoutALedger):
    result_place = "results"


class TestOutboxWithoutALedger(Outbox, WithoutALedger, CommitContract): ...


class TestOutboxWithoutALedgerApart(Outbox, WithoutALedgerApart, CommitContract): ...


class TestTwoPhaseWithoutALedger(TwoPhase, WithoutALedger, CommitContract): ...


class TestTwoPhaseWithoutALedgerApart(TwoPhase, WithoutALedgerApart, CommitContract): ...


class TestSagaWithoutALedger(Saga, WithoutALedger, CommitContract): ...


class TestSagaWithoutALedgerApart(Saga, WithoutALedgerApart, CommitContract): ...


# --- crashes in the recovery from a crash ---------------------------------------------------------
class TestOutboxCrashesTwice(Outbox, Together, SecondCrashes): ...


class TestSagaCrashesTwice(Saga, Together, SecondCrashes): ...


@pytest.mark.long
class TestLocalAtomicApartCrashesTwice(LocalAtomic, Apart, SecondCrashes): ...


@pytest.mark.long
class TestOutboxApartCrashesTwice(Outbox, Apart, SecondCrashes): ...


@pytest.mark.long
class TestTwoPhaseCrashesTwice(TwoPhase, Together, SecondCrashes): ...


@pytest.mark.long
class TestTwoPhaseApartCrashesTwice(TwoPhase, Apart, SecondCrashes): ...


@pytest.mark.long
class TestSagaApartCrashesTwice(Saga, Apart, SecondCrashes): ...


# --- the contract can fail ------------------------------------------------------------------------
def _nothing(*_: Any, **__: Any) -> list[Any]:
    return []


def _change_nothing(*_: Any) -> RecordChange:
    return RecordChange("nothing", "nothing", None)


def _no(*_: Any, **__: Any) -> bool:
    return False


CRASH = "test_a_crash_between_any_two_steps_ends_in_the_promised_state"
LOST = "test_a_delivery_that_lost_its_lease_does_not_begin"
CAUGHT = (AssertionError, pytest.fail.Exception, Crash, LocalQueueError)
DEFECTS: list[tuple[type[CommitCase], str, Any, str]] = [
    # A delivery begins without looking at its lease.
    (TestLocalAtomicTogether, "home.Home.check_held", _nothing, LOST),
    (TestOutboxWithoutALedger, "home.Home.check_held", _nothing, LOST),
    # The ledger forgets.
    (TestLocalAtomicTogether, "ledger.Ledger.success", _nothing, "test_a_repetition_of_a_key"),
    (TestLocalAtomicApart, "ledger.Ledger.save_success", _nothing, "test_a_repetition_of_a_key"),
    # The result is not kept.
    (TestLocalAtomicTogether, "kept_results.KeptResults.with_ack", _nothing, "test_a_success_is"),
    # A success that is half written is not remembered: the ledger has it, the envelope is missing.
    (TestOutboxWithItsLedgerApart, "intents.Intents.write", _nothing, CRASH),
    (TestOutboxApart, "intents.Intents.removal", _change_nothing, "test_a_success_is"),
    # Nobody knows that the envelope is still to be sent.
    (TestOutboxTogether, "outbox.OutboxEffects.recover", _no, CRASH),
    (TestOutboxTogether, "outbox.OutboxEffects._remove", _nothing, "test_a_success_is"),
    # The decision is not durable, or recovery does not look at leases.
    (TestTwoPhaseTogether, "two_phase.TwoPhaseEffects.decided", _nothing, "test_a_success_is"),
    (TestTwoPhaseTogether, "two_phase.TwoPhaseEffects._commit_decided", _no, CRASH),
    (TestTwoPhaseTogether, "home.Home.is_held", _no, "test_recovery_does_not_disturb"),
    (TestTwoPhaseTogether, "two_phase.TwoPhaseEffects._left_in_doubt", _nothing, CRASH),
    # A saga goes on without knowing what is done, or is never over.
    (TestSagaTogether, "saga.SagaEffects.resume", _nothing, CRASH),
]


@pytest.mark.parametrize(("case", "target", "defect", "sentence"), DEFECTS)
def test_a_planted_defect_is_caught(
    case: type[Together],
    target: str,
    defect: Any,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [name] = [name for name in dir(case) if name.startswith(sentence)]
    instance = case()
    monkeypatch.setattr(f"localqueue.commits.{target}", defect)

    with instance.prepared(), pytest.raises(CAUGHT):
        getattr(instance, name)(tmp_path)
