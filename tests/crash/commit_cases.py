"""A queue in a folder under each commit policy, with all its stores in one file or apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from localqueue import (
    EffectivelyOnceDelivery,
    LocalAtomicCommit,
    PersistentQueue,
    ReturnStoredResult,
    SagaCommit,
    SagaStep,
    SQLiteParticipant,
    SQLiteQueueStore,
    TransactionalOutboxCommit,
    TwoPhaseCommit,
)
from localqueue.idempotency import SQLiteIdempotencyStore
from localqueue.policies import CommitPolicy
from localqueue.results import ResultStore, SQLiteResultStore
from tests.crash.effects import Rooms, Sent, add_row, rows

KEY = "key-1"
RESULT = {"paid": 5}
POLICIES = ("local-atomic", "outbox", "two-phase", "saga")
LAYOUTS = ("together", "apart")
STEPS = ("flight", "hotel")


@contextmanager
def opened(folder: Path, policy: str, layout: str) -> Iterator[PersistentQueue[Any]]:
    apart = layout == "apart"
    path = folder / "queue.sqlite3"
    with ExitStack() as stack:
        store = stack.enter_context(SQLiteQueueStore(path))
        ledger = SQLiteIdempotencyStore(folder / "ledger.sqlite3" if apart else path)
        results = SQLiteResultStore(folder / "results.sqlite3" if apart else path)
        stack.enter_context(ledger)
        stack.enter_context(results)
        yield PersistentQueue(
            "jobs",
            store=store,
            delivery_policy=EffectivelyOnceDelivery(
                ledger, ReturnStoredResult(results), commit_policy(folder, policy, results)
            ),
        )


def commit_policy(folder: Path, policy: str, results: ResultStore) -> CommitPolicy:
    match policy:
        case "outbox":
            return TransactionalOutboxCommit(results, Sent(folder).send)
        case "two-phase":
            files = [SQLiteParticipant(folder / name, add_row) for name in ("bank", "shop")]
            return TwoPhaseCommit(results, results, files)
        case "saga":
            return SagaCommit(results, [_step(Rooms(folder), name) for name in STEPS])
    return LocalAtomicCommit()


def effects(folder: Path, policy: str, layout: str) -> list[str]:
    """The keys whose effects stand; AssertionError when one stands by half."""
    match policy:
        case "outbox":
            # Sent at least once: the receiver knows a repetition by its key.
            return sorted(set(Sent(folder).keys()))
        case "two-phase":
            bank, shop = rows(folder / "bank"), rows(folder / "shop")
            assert bank == shop, f"the bank has {bank}, the shop {shop}"
            return bank
        case "saga":
            booked = Rooms(folder).booked()
            assert booked in ([], [f"{name} {KEY}" for name in STEPS]), f"booked is {booked}"
            return [KEY] if booked else []
    path = folder / ("results.sqlite3" if layout == "apart" else "queue.sqlite3")
    with SQLiteResultStore(path) as results:
        return [KEY] if results.load(f"dedupe:jobs:{KEY}") == RESULT else []


def _step(rooms: Rooms, name: str) -> SagaStep:
    return SagaStep(
        name,
        lambda message, _: rooms.book(name, message),
        lambda message, _: rooms.cancel(name, message),
    )
