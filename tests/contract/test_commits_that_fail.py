"""A step that fails or a participant that refuses, and a crash at every moment of undoing that.

Whenever the process ends, nothing of the failed delivery stands in the end: no step, nothing
prepared, nothing left over. Once the step is mended, the same message has its whole effect, once.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from localqueue import failpoints
from localqueue.errors import CompatibilityWarning
from localqueue.idempotency import IdempotencyRecords
from localqueue.message import QueueMessage
from localqueue.policies import (
    CommitPolicy,
    EffectivelyOnceDelivery,
    ReturnStoredResult,
    SagaCommit,
    SagaStep,
    TwoPhaseCommit,
)
from localqueue.queue import PersistentQueue
from localqueue.results import ResultRecords, ResultStore
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.protocol import Settled
from localqueue.testing import ManualClock
from localqueue.testing.commit_contract import KEY, LONG, Crash, Worker, succeed

STEPS = ("flight", "hotel", "car")
KINDS_OF_RECORDS = ("intent", "relay", "saga", "decision")


class Trip:
    """What the steps of a saga have booked; the last step fails as long as it is broken."""

    def __init__(self) -> None:
        self.is_broken = True
        self.booked: set[str] = set()

    def policy(self, results: ResultStore) -> CommitPolicy:
        return SagaCommit(results, [self._step(name) for name in STEPS])

    def stands(self) -> set[str]:
        return self.booked

    def is_whole(self) -> bool:
        return self.booked == set(STEPS)

    def _step(self, name: str) -> SagaStep:
        def act(message: QueueMessage[Any], result: Any) -> None:
            if name == STEPS[-1] and self.is_broken:
                raise ConnectionError("no cars today")
            self.booked.add(name)

        return SagaStep(name, act, lambda message, result: self.booked.discard(name))


class Payment:
    """Two participants, of which the second refuses as long as it is broken."""

    def __init__(self) -> None:
        self.is_broken = True
        self.participants = [Account(self, refuses=False), Account(self, refuses=True)]

    def policy(self, results: ResultStore) -> CommitPolicy:
        return TwoPhaseCommit(results, results, self.participants)

    def stands(self) -> set[str]:
        return {
            transaction
            for account in self.participants
            for transaction in (*account.prepared, *account.committed)
        }

    def is_whole(self) -> bool:
        return all(len(account.committed) == 1 for account in self.participants)


class Account:
    def __init__(self, payment: Payment, *, refuses: bool) -> None:
        self._payment = payment
        self._refuses = refuses
        self.prepared: set[str] = set()
        self.committed: list[str] = []

    def prepare(self, transaction: str, message: QueueMessage[Any], result: Any) -> None:
        if self._refuses and self._payment.is_broken:
            raise ValueError("not enough money")
        self.prepared.add(transaction)

    def commit(self, transaction: str) -> None:
        if transaction in self.prepared:
            self.prepared.discard(transaction)
            self.committed.append(transaction)

    def abort(self, transaction: str) -> None:
        self.prepared.discard(transaction)

    def in_doubt(self) -> list[str]:
        return sorted(self.prepared)


class World:
    """A queue under a commit that fails; its stores and effects outlive every queue object."""

    def __init__(self, effect: type[Trip | Payment], layout: str) -> None:
        self.effect: Trip | Payment = effect()
        self.clock = ManualClock()
        self._store = MemoryQueueStore()
        apart = layout == "apart"
        self._ledger = MemoryQueueStore() if apart else self._store
        self._results = MemoryQueueStore() if apart else self._store
        self.worker().queue.put("value", dedupe_key=KEY)

    def worker(self) -> Worker:
        """A new process, which knows nothing of the one before."""
        results = ResultRecords.of(self._results)
        delivery = EffectivelyOnceDelivery(
            IdempotencyRecords.of(self._ledger),
            ReturnStoredResult(results),
            self.effect.policy(results),
        )
        return Worker(
            PersistentQueue("jobs", store=self._store, clock=self.clock, delivery_policy=delivery)
        )

    def left_over(self) -> list[str]:
        found = [
            record
            for kind in KINDS_OF_RECORDS
            for record in self._store.scan_records(kind, now=self.clock.wall())
        ]
        return [f"{one.kind} {one.key}" for one in found if b'"abort"' not in one.value]


@pytest.fixture(autouse=True)
def _in_memory() -> Iterator[None]:
    with warnings.catch_warnings():
        # What is in memory is gone with the process: here a crash does not end it.
        warnings.simplefilter("ignore", CompatibilityWarning)
        yield


def moments(effect: type[Trip | Payment], layout: str, *, final: bool) -> list[str]:
    """What a delivery reaches that nobody kills."""
    reached: list[str] = []
    with failpoints.listening(reached.append):
        World(effect, layout).worker().work(succeed, final=final)
    assert len(reached) >= 3, "nothing is reached: are these the right failpoints?"
    return reached


def crash_at(place: int, world: World, *, final: bool) -> None:
    reached: list[str] = []

    def die(point: str) -> None:
        if len(reached) == place:
            raise Crash(point)
        reached.append(point)

    with failpoints.listening(die), pytest.raises(Crash):
        world.worker().work(succeed, final=final)
    world.clock.advance(LONG)


def give_up(world: World) -> Worker:
    """Deliver it until it is a dead letter, and let whatever is left be recovered."""
    worker = world.worker()
    worker.recover()
    while worker.work(succeed, final=True) is not None:
        pass
    world.clock.advance(LONG)
    worker.recover()
    return worker


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("layout", ["together", "apart"])
@pytest.mark.parametrize("effect", [Trip, Payment])
def test_nothing_of_a_delivery_that_failed_stands_wherever_it_crashed(
    effect: type[Trip | Payment], layout: str, final: bool
) -> None:
    for place, point in enumerate(moments(effect, layout, final=final)):
        world = World(effect, layout)
        crash_at(place, world, final=final)

        worker = give_up(world)

        assert world.effect.stands() == set(), point
        assert world.left_over() == [], point
        assert len(worker.queue.dead_letters()) == 1, point


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("layout", ["together", "apart"])
@pytest.mark.parametrize("effect", [Trip, Payment])
def test_mended_it_has_its_whole_effect_wherever_it_crashed(
    effect: type[Trip | Payment], layout: str, final: bool
) -> None:
    for place, point in enumerate(moments(effect, layout, final=final)):
        world = World(effect, layout)
        crash_at(place, world, final=final)
        worker = give_up(world)
        world.effect.is_broken = False

        worker.queue.requeue_dead(worker.queue.dead_letters()[0])
        assert worker.work(succeed) is Settled.DONE, point

        assert world.effect.is_whole(), point
        assert world.left_over() == [], point


@pytest.mark.parametrize(
    ("effect", "layout", "defect"),
    [
        (Trip, "together", "saga.SagaEffects._compensate"),
        (Payment, "together", "two_phase.TwoPhaseEffects._tell_all"),
    ],
)
def test_what_is_not_undone_is_caught(
    effect: type[Trip | Payment], layout: str, defect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"localqueue.commits.{defect}", lambda *_: True)

    with pytest.raises(AssertionError):
        test_nothing_of_a_delivery_that_failed_stands_wherever_it_crashed(effect, layout, True)
