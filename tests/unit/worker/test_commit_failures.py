"""What becomes of a message when not the handler fails, but what surrounds it."""

from __future__ import annotations

from typing import Any

import pytest
from tenacity import stop_after_attempt, wait_none

from localqueue import (
    EffectivelyOnceDelivery,
    InvalidResult,
    LeaseLost,
    MemoryQueueStore,
    PersistentQueue,
    ReturnStoredResult,
)
from localqueue.commits.protocol import Extras, Run
from localqueue.idempotency import IdempotencyRecord, MemoryIdempotencyStore
from localqueue.results import MemoryResultStore
from tests.unit.worker.own_commit import Message, OwnCommit, committing

Queue = PersistentQueue[Any]

pytestmark = pytest.mark.filterwarnings("ignore::localqueue.CompatibilityWarning")


class FailingAt(OwnCommit):
    """Raises at one step, as often as it is told to."""

    def __init__(self, step: str, error: BaseException, times: int = 99) -> None:
        self.step, self.error, self.times = step, error, times
        self.dropped_ids: list[str] = []

    def begin(self, message: Message) -> Run:
        self.fail("begin")
        return Run()

    def success(self, message: Message, result: Any) -> Extras:
        self.fail("success")
        return super().success(message, result)

    def settled(self, message: Message) -> None:
        self.fail("settled")

    def dropped(self, message: Message) -> None:
        self.dropped_ids.append(message.id)
        self.fail("dropped")

    def recover(self) -> int:
        self.fail("recover")
        return 0

    def fail(self, step: str) -> None:
        if step == self.step and self.times:
            self.times -= 1
            raise self.error


class AwayAtFirst(MemoryIdempotencyStore):
    """A ledger that does not answer the first time it is asked."""

    asked = 0

    def find(self, key: str) -> Any:
        self.asked += 1
        if self.asked == 1:
            raise OSError("the ledger is away")
        return super().find(key)


def test_a_ledger_that_is_away_for_a_moment_costs_one_try_and_not_the_message(kind: Any) -> None:
    policy = EffectivelyOnceDelivery(idempotency_store=AwayAtFirst())
    queue: Queue = PersistentQueue("jobs", store=MemoryQueueStore(), delivery_policy=policy)
    put = queue.put("job", dedupe_key="a")
    calls: list[str] = []
    handle = kind.worker(queue, calls.append, max_tries=5)

    with pytest.raises(OSError, match="ledger is away"):
        handle()

    later = queue.inspect(put.id)
    assert later is not None
    assert (later.state, later.failures, calls) == ("ready", 1, [])
    assert queue.stats().delayed == 1  # nobody has waited inside the lease
    handle()
    assert calls == ["job"]
    assert queue.stats().total == 0


@pytest.mark.parametrize("step", ["begin", "success"])
@pytest.mark.parametrize("budget", [{"max_tries": 2}, {"stop": stop_after_attempt(2)}])
def test_a_commit_that_goes_on_failing_spends_the_budget_of_the_message(
    kind: Any, step: str, budget: dict[str, Any]
) -> None:
    queue = committing(FailingAt(step, OSError("away")))
    put = queue.put("job", dedupe_key="a")
    queue.release(queue.get_message(), error="elsewhere")

    with pytest.raises(OSError, match="away"):
        kind.worker(queue, lambda value: value, **budget)()

    dead = queue.inspect(put.id)
    assert dead is not None
    assert (dead.state, dead.failures) == ("dead", 2)


@pytest.mark.parametrize("step", ["begin", "success"])
def test_an_exit_out_of_a_commit_is_a_failure_like_others(kind: Any, step: str) -> None:
    queue = committing(FailingAt(step, SystemExit(1)))
    put = queue.put("job", dedupe_key="a")

    with pytest.raises(SystemExit):
        kind.worker(queue, lambda value: value, max_tries=1)()

    dead = queue.inspect(put.id)
    assert dead is not None
    assert (dead.state, dead.failures) == ("dead", 1)


@pytest.mark.parametrize("step", ["begin", "success"])
def test_an_interrupt_out_of_a_commit_charges_nothing(kind: Any, step: str) -> None:
    queue = committing(FailingAt(step, KeyboardInterrupt()))
    put = queue.put("job", dedupe_key="a")

    with pytest.raises(KeyboardInterrupt):
        kind.worker(queue, lambda value: value, max_tries=1)()

    released = queue.inspect(put.id)
    assert released is not None
    assert (released.state, released.failures) == ("ready", 0)


@pytest.mark.parametrize("step", ["begin", "success"])
def test_a_key_that_another_delivery_has_taken_drops_this_one_and_charges_nothing(
    kind: Any, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    commit = FailingAt(step, LeaseLost("the key was taken"))
    queue = committing(commit)
    put = queue.put("job", dedupe_key="a")

    assert kind.worker(queue, lambda value: value, max_tries=1)() is None

    released = queue.inspect(put.id)
    assert released is not None
    assert (released.state, released.failures, released.last_error) == ("ready", 0, None)
    assert queue.qsize() == 1  # its own lease may have been whole
    assert commit.dropped_ids == [put.id]
    assert "the result is dropped" in caplog.text


class Results(MemoryResultStore):
    away = True

    def save(self, key: str, value: Any) -> None:
        if self.away:
            self.away = False
            raise OSError("the results are away")
        super().save(key, value)


def test_a_decided_success_is_not_charged_and_the_next_delivery_writes_what_is_missing(
    kind: Any,
) -> None:
    results, ledger = Results(), MemoryIdempotencyStore()
    policy = EffectivelyOnceDelivery(
        idempotency_store=ledger, result_policy=ReturnStoredResult(results)
    )
    queue: Queue = PersistentQueue("jobs", store=MemoryQueueStore(), delivery_policy=policy)
    put = queue.put("job", dedupe_key="a")
    calls: list[str] = []

    def work(value: str) -> str:
        calls.append(value)
        return "done"

    handle = kind.worker(queue, work, max_tries=1)
    with pytest.raises(OSError, match="results are away"):
        handle()

    later = queue.inspect(put.id)
    assert later is not None
    assert (later.state, later.failures) == ("ready", 0)
    assert queue.stats().delayed == 1

    assert handle() == "done"
    assert calls == ["job"]
    record = ledger.load("jobs:a")
    assert isinstance(record, IdempotencyRecord)
    assert record.is_done


def test_no_handler_is_run_again_for_a_result_that_cannot_be_stored(kind: Any) -> None:
    policy = EffectivelyOnceDelivery(
        idempotency_store=MemoryIdempotencyStore(), result_policy=ReturnStoredResult()
    )
    queue: Queue = PersistentQueue("jobs", store=MemoryQueueStore(), delivery_policy=policy)
    put = queue.put("job", dedupe_key="a")
    calls: list[str] = []

    def work(value: str) -> object:
        calls.append(value)
        return object()

    with pytest.raises(InvalidResult):
        kind.worker(queue, work, max_tries=5, wait=wait_none())()

    dead = queue.inspect(put.id)
    assert dead is not None
    assert (dead.state, dead.failures, calls) == ("dead", 1, ["job"])


@pytest.mark.parametrize("step", ["settled", "recover"])
def test_what_can_be_done_later_does_not_keep_a_success_from_its_caller(
    kind: Any, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = committing(FailingAt(step, OSError("away")))
    queue.put("job", dedupe_key="a")

    assert kind.worker(queue, lambda value: value)() == "job"

    assert queue.stats().total == 0
    assert "away" in caplog.text


def test_what_cannot_be_undone_now_is_not_the_callers(
    kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    queue = committing(FailingAt("dropped", OSError("away")))
    put = queue.put("job", dedupe_key="a")

    def work(value: str) -> str:
        queue.release(put.id)  # an operator takes it away
        return "too late"

    assert kind.worker(queue, work)() is None

    assert queue.qsize() == 1
    assert "could not be undone" in caplog.text
