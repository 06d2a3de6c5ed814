"""SagaCommit: steps forward; when one fails, those before it are compensated in reverse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from localqueue import (
    ConfigurationError,
    LeaseLost,
    MemoryQueueStore,
    SagaCommit,
    SagaStep,
    WrongType,
    failpoints,
)
from localqueue.clock import Now
from localqueue.commits.protocol import Done, Run, Wait
from localqueue.idempotency import IdempotencyRecords
from localqueue.message import QueueMessage
from localqueue.results import MemoryResultStore, ResultRecords
from localqueue.stores.protocol import Settled
from localqueue.stores.records import Record
from localqueue.testing import ManualClock
from localqueue.testing.commit_contract import RESULT, Crash, Worker, fail, succeed
from tests.unit.commits.phrases import effectively_once, leased, put_and_lease


class Trip:
    """Three steps that note what they do, and fail when they are told to."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.broken: set[str] = set()

    def steps(self, *names: str) -> list[SagaStep]:
        return [
            SagaStep(name, self._doing(name), self._doing(f"undo {name}"))
            for name in names or ("flight", "hotel", "car")
        ]

    def _doing(self, what: str) -> Any:
        def do(message: QueueMessage[Any], result: Any) -> None:
            assert (message.value, message.dedupe_key, result) == ("value", "key", RESULT)
            if what in self.broken:
                raise ConnectionError(f"{what} cannot be done")
            self.log.append(what)

        return do


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> Iterator[MemoryQueueStore]:
    with MemoryQueueStore() as store:
        yield store


@pytest.fixture
def trip() -> Trip:
    return Trip()


@pytest.fixture
def worker(store: MemoryQueueStore, trip: Trip, clock: ManualClock) -> Worker:
    return working(store, SagaCommit(steps=trip.steps()), clock)


def working(store: MemoryQueueStore, policy: SagaCommit, clock: ManualClock) -> Worker:
    worker = Worker(effectively_once(store, IdempotencyRecords.of(store), policy, clock=clock))
    if not worker.queue.stats().total:
        worker.queue.put("value", dedupe_key="key")
    return worker


def die_at(point: str, times: int, worker: Worker) -> None:
    """In the delivery that the worker begins now."""
    left = [times]

    def reached(name: str) -> None:
        left[0] -= name == point
        if not left[0]:
            raise Crash(point)

    with failpoints.listening(reached), pytest.raises(Crash):
        worker.work(succeed)


def test_the_steps_run_in_their_order_after_the_handler(worker: Worker, trip: Trip) -> None:
    def handler(_: QueueMessage[Any]) -> Any:
        trip.log.append("handler")
        return RESULT

    assert worker.work(handler) is Settled.DONE

    assert trip.log == ["handler", "flight", "hotel", "car"]


def test_when_a_step_fails_those_before_it_are_compensated_in_reverse(
    worker: Worker, trip: Trip
) -> None:
    trip.broken.add("car")
    message = leased(worker)
    worker.commit.begin(message)

    with pytest.raises(ConnectionError, match="car"):
        worker.commit.success(message, RESULT)

    assert trip.log == ["flight", "hotel", "undo hotel", "undo flight"]


def test_a_failed_saga_begins_anew_with_the_next_delivery(worker: Worker, trip: Trip) -> None:
    trip.broken.add("hotel")
    worker.work(succeed)
    trip.broken.clear()
    trip.log.clear()

    assert worker.work(succeed) is Settled.DONE

    assert trip.log == ["flight", "hotel", "car"]


@pytest.mark.parametrize("ending", [SystemExit, GeneratorExit])
def test_a_step_that_ends_the_program_has_failed(
    store: MemoryQueueStore, trip: Trip, clock: ManualClock, ending: type[BaseException]
) -> None:
    def leave(*_: Any) -> None:
        raise ending

    steps = [*trip.steps("flight"), SagaStep("leave", leave)]
    worker = working(store, SagaCommit(steps=steps), clock)
    message = leased(worker)
    worker.commit.begin(message)

    with pytest.raises(ending):
        worker.commit.success(message, RESULT)

    assert trip.log == ["flight", "undo flight"]


def test_an_interrupted_saga_goes_on_later(
    store: MemoryQueueStore, trip: Trip, clock: ManualClock
) -> None:
    def interrupt(*_: Any) -> None:
        trip.log.append("interrupt")
        if trip.log.count("interrupt") == 1:
            raise KeyboardInterrupt

    steps = [*trip.steps("flight"), SagaStep("interrupt", interrupt)]
    worker = working(store, SagaCommit(steps=steps), clock)
    message = leased(worker)
    worker.commit.begin(message)
    with pytest.raises(KeyboardInterrupt):
        worker.commit.success(message, RESULT)
    worker.queue.release(message)

    assert worker.work(_not_run) is Settled.DONE

    assert trip.log == ["flight", "interrupt", "interrupt"]


def test_after_a_crash_the_redelivery_goes_on_with_the_next_step(
    worker: Worker, trip: Trip, clock: ManualClock
) -> None:
    die_at("saga.after-step", 2, worker)
    clock.advance(31)

    message = leased(worker)
    begun = worker.commit.begin(message)

    assert isinstance(begun, Done)
    assert begun.result == RESULT
    assert trip.log == ["flight", "hotel", "car"]


def test_a_step_in_which_the_worker_died_is_run_again(
    worker: Worker, trip: Trip, clock: ManualClock
) -> None:
    die_at("saga.after-action", 2, worker)
    clock.advance(31)

    assert worker.work(_not_run) is Settled.DONE

    assert trip.log == ["flight", "hotel", "hotel", "car"]


def test_compensations_go_on_after_a_crash_before_anything_else(
    worker: Worker, trip: Trip, clock: ManualClock
) -> None:
    trip.broken.add("car")
    die_at("saga.after-undone", 1, worker)
    assert trip.log == ["flight", "hotel", "undo hotel"]
    clock.advance(31)
    trip.broken.clear()
    message = leased(worker)

    assert worker.commit.begin(message) == Run()

    assert trip.log == ["flight", "hotel", "undo hotel", "undo flight"]


def test_a_compensation_that_fails_is_tried_again(worker: Worker, trip: Trip) -> None:
    trip.broken |= {"car", "undo flight"}
    message = leased(worker)
    worker.commit.begin(message)
    with pytest.raises(ConnectionError, match="car") as failed:
        worker.commit.success(message, RESULT)
    assert "compensation failed" in failed.value.__notes__[0]
    worker.queue.release(message)

    again = leased(worker)
    with pytest.raises(ConnectionError, match="undo flight"):
        worker.commit.begin(again)
    trip.broken.clear()
    worker.queue.release(again)
    assert worker.work(succeed) is Settled.DONE

    assert trip.log == ["flight", "hotel", "undo hotel", "undo flight", "flight", "hotel", "car"]


def test_the_saga_of_a_dead_letter_is_compensated_by_recovery(
    worker: Worker, trip: Trip, clock: ManualClock
) -> None:
    die_at("saga.after-step", 2, worker)
    clock.advance(31)
    assert worker.recover() == 0, "the redelivery is still to come"
    worker.queue.dead_letter(leased(worker), "killed its worker too often")

    assert worker.recover() == 1

    # The step after those that are known to be done may have had its effect too.
    assert trip.log == ["flight", "hotel", "undo car", "undo hotel", "undo flight"]
    assert worker.recover() == 0


def test_the_saga_of_a_message_that_was_removed_is_compensated_with_its_value(
    worker: Worker, trip: Trip, clock: ManualClock
) -> None:
    die_at("saga.after-step", 1, worker)
    worker.queue.purge()

    assert worker.recover() == 1

    assert trip.log == ["flight", "undo hotel", "undo flight"]


def test_a_saga_that_somebody_recovers_is_left_to_them(
    worker: Worker, trip: Trip, clock: ManualClock
) -> None:
    die_at("saga.after-step", 1, worker)
    clock.advance(31)
    worker.queue.dead_letter(leased(worker))
    trip.broken.add("undo flight")
    assert worker.recover() == 0
    trip.broken.clear()

    assert worker.recover() == 0, "somebody is at it for a minute"
    worker.queue.requeue_dead(worker.queue.dead_letters()[0])
    assert worker.commit.begin(leased(worker)) == Wait(5.0)

    clock.advance(61)
    assert worker.work(succeed) is Settled.DONE
    assert trip.log[-3:] == ["flight", "hotel", "car"]


def test_a_delivery_that_lost_its_lease_cannot_go_on(
    store: MemoryQueueStore, trip: Trip, clock: ManualClock
) -> None:
    late: list[bool] = []

    def meanwhile(*_: Any) -> None:
        if not late:
            late.append(True)
            clock.advance(31)
            assert working(store, SagaCommit(steps=steps), clock).work(_not_run) is Settled.DONE

    steps = [SagaStep("meanwhile", meanwhile), *trip.steps("hotel")]
    worker = working(store, SagaCommit(steps=steps), clock)
    message = leased(worker)
    worker.commit.begin(message)

    with pytest.raises(Exception, match=r"taken over|does not count"):
        worker.commit.success(message, RESULT)

    assert trip.log == ["hotel"]


def test_a_delivery_that_loses_its_lease_as_it_begins_does_not_take_the_saga(
    trip: Trip, clock: ManualClock
) -> None:
    class Meddled(MemoryQueueStore):
        before_loading: Callable[[], None] | None = None

        def load_record(self, kind: str, key: str, *, now: Now) -> Record | None:
            meddle = self.before_loading
            if kind == "saga" and meddle is not None:
                self.before_loading = None
                meddle()
            return super().load_record(kind, key, now=now)

    with Meddled() as store:
        worker = Worker(effectively_once(store, None, SagaCommit(steps=trip.steps()), clock=clock))

        def somebody_else_begins() -> None:
            clock.advance(31)
            assert isinstance(worker.commit.begin(leased(worker)), Done)

        worker.queue.put("value", dedupe_key="key")
        die_at("saga.after-step", 1, worker)
        clock.advance(31)
        stale = leased(worker)
        store.before_loading = somebody_else_begins

        with pytest.raises(LeaseLost):
            worker.commit.begin(stale)

    assert trip.log == ["flight", "hotel", "car"]


def test_without_a_ledger_the_saga_of_another_message_is_compensated_first(
    store: MemoryQueueStore, clock: ManualClock
) -> None:
    log: list[Any] = []

    def step(name: str) -> SagaStep:
        return SagaStep(
            name,
            lambda message, result: log.append((name, message.value, result)),
            lambda message, result: log.append((f"undo {name}", message.value, result)),
        )

    policy = SagaCommit(steps=[step("flight"), step("hotel")])
    worker = Worker(effectively_once(store, None, policy, clock=clock))
    worker.queue.put("A", dedupe_key="key")
    die_at("saga.after-step", 1, worker)
    worker.queue.purge()
    worker.queue.put("B", dedupe_key="key")

    assert worker.work(lambda message: f"result of {message.value}") is Settled.DONE

    assert log == [
        ("flight", "A", RESULT),
        ("undo hotel", "A", RESULT),
        ("undo flight", "A", RESULT),
        ("flight", "B", "result of B"),
        ("hotel", "B", "result of B"),
    ]


def test_without_a_ledger_a_message_waits_for_the_saga_of_another_that_comes_again(
    store: MemoryQueueStore, trip: Trip, clock: ManualClock
) -> None:
    worker = Worker(effectively_once(store, None, SagaCommit(steps=trip.steps()), clock=clock))
    worker.queue.put("value", dedupe_key="key")
    die_at("saga.after-step", 1, worker)
    worker.queue.put("value", dedupe_key="another")
    other = replace(leased(worker), dedupe_key="key")

    assert worker.commit.begin(other) == Wait(5.0)

    assert trip.log == ["flight"]


def test_a_saga_whose_steps_the_policy_does_not_know_is_not_guessed_at(
    store: MemoryQueueStore, worker: Worker, trip: Trip, clock: ManualClock
) -> None:
    die_at("saga.after-step", 2, worker)
    clock.advance(31)
    changed = working(store, SagaCommit(steps=trip.steps("train", "hotel")), clock)

    with pytest.raises(ConfigurationError, match="flight, hotel"):
        changed.commit.begin(leased(changed))


def test_the_envelopes_are_in_the_saga_store(store: MemoryQueueStore, clock: ManualClock) -> None:
    with MemoryResultStore() as sagas:
        for given, place in ((sagas, sagas), (None, ResultRecords.of(store))):
            worker = working(store, SagaCommit(given), clock)
            message = put_and_lease(worker, key="other") if given is None else leased(worker)
            worker.commit.begin(message)
            key = message.dedupe_key
            failed = worker.commit.failure(message, ValueError("no"), True)
            store.change_records(failed.records, now=clock.wall())
            worker.commit.begin(message)
            done = worker.commit.success(message, RESULT)
            store.change_records(done.records, now=clock.wall())

            forward = place.load(f"saga:forward:dedupe:jobs:{key}")
            backward = place.load(f"saga:compensate:dedupe:jobs:{key}")
            assert forward == {
                "queue": "jobs",
                "message_id": message.id,
                "dedupe_key": key,
                "phase": "forward",
                "result": RESULT,
            }
            assert backward is not None
            assert backward["error"]["message"] == "no"


def test_an_envelope_says_compensate_only_of_what_has_failed_for_good(
    store: MemoryQueueStore, clock: ManualClock
) -> None:
    with MemoryResultStore() as sagas:
        for given, place in ((sagas, sagas), (None, ResultRecords.of(store))):
            worker = Worker(effectively_once(store, None, SagaCommit(given), clock=clock))
            worker.queue.put("value", dedupe_key="key")
            worker.work(fail)
            assert worker.work(succeed) is Settled.DONE

            assert place.load("saga:forward:dedupe:jobs:key") is not None
            assert place.load("saga:compensate:dedupe:jobs:key") is None


def test_of_a_success_that_is_not_written_everywhere_no_envelope_says_compensate(
    store: MemoryQueueStore, trip: Trip, clock: ManualClock
) -> None:
    class Flaky(MemoryResultStore):
        is_away = True

        def save(self, key: str, value: Any) -> None:
            if self.is_away and "forward" in key:
                raise ConnectionError("the saga store does not answer")
            super().save(key, value)

    with Flaky() as sagas:
        policy = SagaCommit(sagas, trip.steps())
        worker = Worker(effectively_once(store, None, policy, clock=clock))
        worker.queue.put("value", dedupe_key="key")
        worker.work(succeed, final=True)
        sagas.is_away = False
        assert worker.recover() == 1

        assert sagas.load("saga:forward:dedupe:jobs:key") is not None
        assert sagas.load("saga:compensate:dedupe:jobs:key") is None
        assert trip.log == ["flight", "hotel", "car"]


@pytest.mark.parametrize(
    ("steps", "error", "told"),
    [
        (["reserve"], WrongType, "SagaStep"),
        ([SagaStep("a", print), SagaStep("a", print)], ConfigurationError, "different names"),
    ],
)
def test_steps_that_cannot_work_are_refused(steps: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        SagaCommit(steps=steps)


@pytest.mark.parametrize("wrong", [{"action": 3}, {"action": print, "compensation": 3}])
def test_a_step_that_cannot_be_called_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(WrongType, match="callable"):
        SagaStep("a", **wrong)


def _not_run(_: QueueMessage[Any]) -> Any:
    raise AssertionError("the handler was run again")
