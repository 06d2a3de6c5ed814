"""Which commit a queue gets, and what is refused before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localqueue import (
    AtMostOnceDelivery,
    ConfigurationError,
    LocalAtomicCommit,
    MemoryQueueStore,
    PersistentQueue,
    ReturnStoredResult,
    SagaCommit,
    SagaStep,
    SQLiteQueueStore,
    TransactionalOutboxCommit,
    TwoPhaseCommit,
)
from localqueue.commits.flow import Flow
from localqueue.commits.open import commit_for
from localqueue.commits.protocol import Run
from localqueue.idempotency import (
    IdempotencyRecords,
    MemoryIdempotencyStore,
    SQLiteIdempotencyStore,
)
from localqueue.results import MemoryResultStore, ResultRecords, SQLiteResultStore
from localqueue.stores.protocol import Settled
from localqueue.testing.commit_contract import RESULT, Worker, succeed
from tests.contract.test_minimal_store import DictStore
from tests.unit.commits.phrases import NO_RESULT, effectively_once, leased, put_and_lease


@pytest.fixture
def store() -> Iterator[MemoryQueueStore]:
    with MemoryQueueStore() as store:
        yield store


def test_a_queue_that_promises_nothing_about_effects_has_no_commit(
    store: MemoryQueueStore,
) -> None:
    assert commit_for(PersistentQueue[Any]("jobs", store=store)) is None
    at_most_once = PersistentQueue[Any]("a", store=store, delivery_policy=AtMostOnceDelivery())
    assert commit_for(at_most_once) is None
    assert commit_for(effectively_once(store, None, results=NO_RESULT)) is None


@pytest.mark.parametrize(
    "policy", [TransactionalOutboxCommit(), TwoPhaseCommit(), SagaCommit()], ids=lambda p: p.mode
)
def test_without_a_ledger_the_commit_policy_is_carried_out_all_the_same(
    store: MemoryQueueStore, policy: Any
) -> None:
    worker = Worker(effectively_once(store, None, policy, results=NO_RESULT))
    message = worker.queue.put("value", dedupe_key="key")
    worker.work(succeed)

    # Without a ledger a key may come again, and each message has its own envelope to be sent.
    kind = {
        "transactional-outbox": f"outbox:dedupe:jobs:key:{message.id}",
        "two-phase": "commit:dedupe:jobs:key",
        "saga": "saga:forward:dedupe:jobs:key",
    }
    envelope = ResultRecords.of(store).load(kind[policy.mode])
    assert envelope is not None
    assert envelope["result"] == RESULT


def test_without_a_ledger_a_result_is_kept_in_the_store_of_the_queue(
    store: MemoryQueueStore,
) -> None:
    worker = Worker(effectively_once(store, None, results=ReturnStoredResult()))
    worker.queue.put("value", dedupe_key="key")
    worker.work(succeed)

    assert ResultRecords.of(store).load("dedupe:jobs:key") == RESULT


def test_a_success_on_the_file_of_the_queue_is_one_transaction(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    (tmp_path / "link.sqlite3").symlink_to(path)
    with (
        SQLiteQueueStore(path) as store,
        SQLiteIdempotencyStore(tmp_path / "link.sqlite3") as ledger,
        SQLiteResultStore(path) as results,
    ):
        policy = TransactionalOutboxCommit(results)
        queue = effectively_once(store, ledger, policy, results=ReturnStoredResult(results))
        worker = Worker(queue)
        message = put_and_lease(worker)
        assert worker.commit.begin(message) == Run()
        before = store.diagnostics()["engine"]["commits"]

        extras = worker.commit.success(message, RESULT)

        assert store.diagnostics()["engine"]["commits"] == before
        kinds = [change.kind for change in extras.records]
        assert sorted(kinds) == ["ledger", "ledger-done", "result", "result"]


def test_a_policy_that_can_be_carried_out_brings_its_own_commit(store: MemoryQueueStore) -> None:
    class Own(LocalAtomicCommit):
        def commit(self, queue: PersistentQueue[Any]) -> Any:
            return (queue.name, "its own")

    queue = effectively_once(store, None, Own())

    assert commit_for(queue) == ("jobs", "its own")  # type: ignore[comparison-overlap]


def test_a_policy_that_only_names_itself_is_refused(store: MemoryQueueStore) -> None:
    class Named:
        mode = "wishful"
        local_commit = True
        coordinates_effects = False

        def as_dict(self) -> dict[str, Any]:
            return {"mode": self.mode}

    with pytest.raises(ConfigurationError, match=r"'wishful'.*commit\(queue\)"):
        commit_for(effectively_once(store, None, Named()))


# --- a custom store with the simple verbs ---------------------------------------------------------
def test_on_a_store_without_records_ledger_and_results_work_in_their_own() -> None:
    with MemoryIdempotencyStore() as ledger, MemoryResultStore() as results:
        queue = effectively_once(DictStore(), ledger, results=ReturnStoredResult(results))
        worker = Worker(queue)
        worker.queue.put("value", dedupe_key="key")

        assert worker.work(succeed) is Settled.DONE

        assert results.load("dedupe:jobs:key") == RESULT
        record = ledger.load("jobs:key")
        assert record is not None
        assert record.is_done


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (TransactionalOutboxCommit(), "outbox_store="),
        (TwoPhaseCommit(), "prepare_store="),
        (SagaCommit(), "saga_store="),
    ],
)
def test_a_store_without_records_has_no_place_for_envelopes(policy: Any, told: str) -> None:
    with MemoryIdempotencyStore() as ledger, pytest.raises(ConfigurationError, match=told):
        commit_for(effectively_once(DictStore(), ledger, policy))


def test_what_a_crash_would_forget_is_refused_on_a_store_without_records() -> None:
    with MemoryIdempotencyStore() as ledger, MemoryResultStore() as results:
        for policy in (
            TransactionalOutboxCommit(results, relay=print),
            SagaCommit(results, [SagaStep("a", print)]),
        ):
            with pytest.raises(ConfigurationError, match="keeps no records"):
                commit_for(effectively_once(DictStore(), ledger, policy))


def test_a_custom_ledger_gets_the_records_of_the_reference(store: MemoryQueueStore) -> None:
    with MemoryIdempotencyStore() as kept:

        class Own:
            load, save, delete = kept.load, kept.save, kept.delete
            prune_completed = kept.prune_completed
            count_completed_older_than = kept.count_completed_older_than

        worker = Worker(effectively_once(store, Own()))
        message = worker.queue.put("value", dedupe_key="key")
        worker.work(succeed)

        record = kept.load("jobs:key")
        assert record is not None
        assert (record.status, record.result_key) == ("succeeded", "inline")
        assert record.metadata == {
            "queue": "jobs",
            "message_id": message.id,
            "dedupe_key": "key",
            "result": RESULT,
        }
        worker.queue.put("again", dedupe_key="key")
        assert worker.commit.begin(leased(worker)).result == RESULT  # type: ignore[union-attr]


def test_the_commit_of_the_library_is_the_flow(store: MemoryQueueStore) -> None:
    assert isinstance(commit_for(effectively_once(store, IdempotencyRecords.of(store))), Flow)
