"""What a decorated function does with a message: the same in a thread and on an event loop."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
from tenacity import (
    RetryCallState,
    RetryError,
    retry_if_exception_type,
    stop_after_attempt,
    stop_before_delay,
    wait_none,
)

from localqueue import MemoryQueueStore, PersistentQueue, PersistentWorkerConfig
from localqueue.commits.protocol import Extras
from localqueue.outcome import Reject, Retry, Snooze
from localqueue.retry import MemoryAttemptStore, RetryRecord
from localqueue.workers import Worker
from localqueue.workers.context import current_message
from tests.unit.worker.own_commit import Message, OwnCommit, committing

Queue = PersistentQueue[Any]


class Flaky:
    """Fails so many times, then returns how often it was called."""

    def __init__(self, failures: int, error: BaseException | None = None) -> None:
        self.failures = failures
        self.error = KeyError("flaky") if error is None else error
        self.calls = 0

    def __call__(self, value: Any) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return self.calls


def records(queue: Queue) -> list[str]:
    store, when = queue._opened()
    return [record.key for record in store.scan_records("attempt", now=when.now)]


# --- success --------------------------------------------------------------------------------------
def test_a_call_handles_one_message_and_returns_what_the_handler_does(
    kind: Any, queue: Queue
) -> None:
    queue.put(1)
    queue.put(2)
    handle = kind.worker(queue, lambda value, more=0, *, times=1: (value + more) * times)

    assert handle() == 1
    assert queue.qsize() == 1
    assert handle(5, times=10) == 70

    assert queue.stats().total == 0


def test_the_handler_knows_its_message(kind: Any, queue: Queue) -> None:
    put = queue.put("job", headers={"colour": "red"})
    seen: list[Any] = []
    handle = kind.worker(queue, lambda value: seen.append(current_message().message))

    handle()

    assert (seen[0].id, dict(seen[0].headers)) == (put.id, {"colour": "red"})
    with pytest.raises(ValueError, match="a worker runs"):
        current_message()


def test_a_worker_inside_a_worker_gives_the_outer_its_message_back(queue: Queue) -> None:
    from localqueue.worker import persistent_worker

    queue.put("outer")
    queue.put("inner")

    @persistent_worker(queue)
    def inner(value: str) -> str:
        return str(current_message().message.value)

    @persistent_worker(queue)
    def outer(value: str) -> tuple[str, str, str]:
        return value, inner(), current_message().message.value  # type: ignore[call-arg]

    assert outer() == ("outer", "inner", "outer")  # type: ignore[call-arg]


def test_the_workers_name_is_in_the_lease_and_among_those_seen(kind: Any, queue: Queue) -> None:
    queue.put("job")
    handle = kind.worker(
        queue, lambda value: current_message().message.leased_by, worker_id="worker-7"
    )

    assert handle() == "worker-7"

    stats = queue.stats()
    assert list(stats.last_seen_by_worker_id) == ["worker-7"]
    assert stats.leases_by_worker_id == {"worker-7": 1}


# --- tries inside the lease -----------------------------------------------------------------------
def test_what_fails_is_tried_again_inside_the_lease(kind: Any, queue: Queue) -> None:
    queue.put("job")
    flaky = Flaky(2)
    handle = kind.worker(queue, flaky, max_tries=3, wait=wait_none())

    assert handle() == 3

    assert queue.stats().total == 0
    assert records(queue) == []


def test_the_last_error_reaches_the_caller_and_the_message_is_a_dead_letter(
    kind: Any, queue: Queue
) -> None:
    put = queue.put("job")
    flaky = Flaky(99)
    handle = kind.worker(queue, flaky, max_tries=3, wait=wait_none())

    with pytest.raises(KeyError, match="flaky"):
        handle()

    dead = queue.inspect(put.id)
    assert dead is not None
    assert (flaky.calls, dead.state, dead.attempts, dead.failures) == (3, "dead", 1, 3)
    assert dead.last_error is not None
    assert dead.last_error["type"] == "KeyError"
    assert records(queue) == []


def test_a_message_that_failed_elsewhere_has_fewer_tries_here(kind: Any, queue: Queue) -> None:
    put = queue.put("job")
    for _ in range(2):
        queue.release(queue.get_message(), error="elsewhere")
    flaky = Flaky(99)

    with pytest.raises(KeyError):
        kind.worker(queue, flaky, max_tries=4, wait=wait_none())()

    dead = queue.inspect(put.id)
    assert dead is not None
    assert (flaky.calls, dead.failures) == (2, 4)


def test_what_failed_here_is_on_the_messages_account(kind: Any, queue: Queue) -> None:
    put = queue.put("job")
    handle = kind.worker(
        queue, Flaky(99), max_tries=2, wait=wait_none(), dead_letter_on_failure=False
    )

    with pytest.raises(KeyError):
        handle()

    released = queue.inspect(put.id)
    assert released is not None
    assert (released.state, released.failures) == ("ready", 2)


def test_a_released_message_runs_again_and_its_first_error_stays_visible(
    kind: Any, queue: Queue
) -> None:
    put = queue.put("job")
    errors = iter([KeyError("first"), KeyError("second")])

    def work(value: Any) -> str:
        error = next(errors, None)
        if error is not None:
            raise error
        return str(current_message().message.attempt_history[1]["last_error"]["message"])

    handle = kind.worker(queue, work, max_tries=1, dead_letter_on_failure=False)
    for text in ("first", "second"):
        with pytest.raises(KeyError, match=text):
            handle()

    assert handle() == "'first'"
    assert queue.inspect(put.id) is None


def test_a_requeued_dead_letter_has_a_whole_budget(kind: Any, queue: Queue) -> None:
    put = queue.put("job")
    flaky = Flaky(99)
    handle = kind.worker(queue, flaky, max_tries=3, wait=wait_none())
    with pytest.raises(KeyError):
        handle()
    queue.requeue_dead(put.id)

    with pytest.raises(KeyError):
        handle()

    dead = queue.inspect(put.id)
    assert dead is not None
    assert (flaky.calls, dead.failures) == (6, 3)


def test_tries_before_an_interrupt_count_although_the_interrupt_does_not(
    kind: Any, queue: Queue
) -> None:
    put = queue.put("job")

    def interrupt(state: RetryCallState) -> None:
        raise KeyboardInterrupt

    flaky = Flaky(99)
    with pytest.raises(KeyboardInterrupt):
        kind.worker(queue, flaky, max_tries=3, wait=wait_none(), before_sleep=interrupt)()
    released = queue.inspect(put.id)
    assert released is not None
    assert (released.state, released.failures) == ("ready", 1)
    assert released.last_error is not None
    assert released.last_error["type"] == "KeyError"
    assert records(queue) == []

    with pytest.raises(KeyError):
        kind.worker(queue, flaky, max_tries=3, wait=wait_none())()

    dead = queue.inspect(put.id)
    assert dead is not None
    assert (flaky.calls, dead.state, dead.failures) == (3, "dead", 3)
    assert records(queue) == []


def test_tries_recorded_before_a_requeue_do_not_count(kind: Any, queue: Queue) -> None:
    put = queue.put("job")
    attempts = MemoryAttemptStore()
    attempts.save(put.id, RetryRecord(2, time.time()))
    queue.dead_letter(put.id, error="an operator")
    queue.requeue_dead(put.id)
    flaky = Flaky(99)

    with pytest.raises(KeyError):
        kind.worker(queue, flaky, max_tries=3, wait=wait_none(), store=attempts)()

    assert flaky.calls == 3


def test_tenacitys_callbacks_count_the_failures_of_other_workers(kind: Any, queue: Queue) -> None:
    queue.put("job")
    queue.release(queue.get_message(), error="elsewhere")
    seen: list[int] = []
    handle = kind.worker(
        queue,
        Flaky(1),
        wait=wait_none(),
        before=lambda state: seen.append(state.attempt_number),
    )

    handle()

    assert seen == [2, 3]


def test_an_error_that_the_retry_does_not_take_is_the_last(kind: Any, queue: Queue) -> None:
    put = queue.put("job")
    flaky = Flaky(99)
    handle = kind.worker(
        queue, flaky, max_tries=5, wait=wait_none(), retry=retry_if_exception_type(OSError)
    )

    with pytest.raises(KeyError):
        handle()

    dead = queue.inspect(put.id)
    assert dead is not None
    assert (flaky.calls, dead.state, dead.failures) == (1, "dead", 1)


def test_a_retry_error_is_the_messenger_of_the_last_failure(kind: Any, queue: Queue) -> None:
    put = queue.put("job")
    handle = kind.worker(queue, Flaky(99), max_tries=2, wait=wait_none(), reraise=False)

    with pytest.raises(RetryError):
        handle()

    dead = queue.inspect(put.id)
    assert dead is not None
    assert dead.last_error is not None
    assert dead.last_error["type"] == "KeyError"


def test_what_a_retry_error_callback_returns_is_the_result(kind: Any, queue: Queue) -> None:
    put = queue.put("job")
    handle = kind.worker(
        queue,
        Flaky(99),
        max_tries=2,
        wait=wait_none(),
        retry_error_callback=lambda state: f"gave up after {state.attempt_number}",
    )

    assert handle() == "gave up after 2"
    assert queue.inspect(put.id) is None


def test_an_attempt_store_of_ones_own_has_the_record_under_the_id(kind: Any, queue: Queue) -> None:
    store = MemoryAttemptStore()
    good, bad = queue.put("good"), queue.put("bad")

    def work(value: str) -> str:
        record = store.load(current_message().message.id)
        if value == "bad" or record is None:
            raise KeyError(value)
        return f"{value} after {record.attempts}"

    handle = kind.worker(queue, work, store=store, max_tries=2, wait=wait_none())

    assert handle() == "good after 1"
    assert store.load(good.id) is None
    with pytest.raises(KeyError):
        handle()
    record = store.load(bad.id)
    assert record is not None
    assert (record.attempts, record.exhausted) == (2, True)
    assert records(queue) == []
    queue.requeue_dead(bad.id)
    with pytest.raises(KeyError):
        handle()


def test_count_crashes_records_a_try_before_it_begins(kind: Any, queue: Queue) -> None:
    put = queue.put("job")
    seen: list[list[str]] = []
    handle = kind.worker(queue, lambda value: seen.append(records(queue)), count_crashes=True)

    handle()

    assert seen == [[f"jobs:{put.id}"]]
    assert records(queue) == []


@pytest.mark.parametrize("own_store", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), Snooze(0)])
def test_count_crashes_counts_no_try_that_charges_nothing(
    kind: Any, queue: Queue, error: BaseException, own_store: bool
) -> None:
    put = queue.put("job")
    flaky = Flaky(1, error)
    store = MemoryAttemptStore() if own_store else None
    handle = kind.worker(queue, flaky, max_tries=1, count_crashes=True, store=store)

    with contextlib.suppress(KeyboardInterrupt):
        handle()
    released = queue.inspect(put.id)
    assert released is not None
    assert (released.state, released.failures, records(queue)) == ("ready", 0, [])

    assert handle() == 2


@pytest.mark.filterwarnings("ignore::localqueue.CompatibilityWarning")
def test_count_crashes_counts_no_try_that_went_well(kind: Any) -> None:
    class Away(OwnCommit):
        def success(self, message: Message, result: Any) -> Extras:
            raise OSError("away")

    queue = committing(Away())
    put = queue.put("job", dedupe_key="a")

    with pytest.raises(OSError, match="away"):
        kind.worker(queue, Flaky(1), max_tries=3, wait=wait_none(), count_crashes=True)()

    later = queue.inspect(put.id)
    assert later is not None
    assert (later.state, later.failures) == ("ready", 2)


def test_tries_that_only_a_record_knows_of_are_charged_with_the_next_release(
    kind: Any, queue: Queue
) -> None:
    put = queue.put("job")
    attempts = MemoryAttemptStore()
    attempts.save(put.id, RetryRecord(2, time.time()))  # by a process that was killed then

    assert kind.worker(queue, Flaky(1, Snooze(0)), store=attempts)() is None

    released = queue.inspect(put.id)
    assert released is not None
    assert (released.state, released.failures) == ("ready", 2)


def test_both_kinds_of_workers_spend_one_budget_also_after_an_interrupt(
    kind: Any, queue: Queue
) -> None:
    put = queue.put("job")
    calls: list[str] = []

    def fail(value: str) -> None:
        calls.append(value)
        if len(calls) == 3:
            raise KeyboardInterrupt
        raise KeyError

    with pytest.raises(KeyboardInterrupt):
        kind.worker(queue, fail, max_tries=3, wait=wait_none())()
    Worker(queue, fail, max_tries=3, backoff=0.0).run(until_empty=True)

    dead = queue.inspect(put.id)
    assert dead is not None
    assert (len(calls) - 1, dead.state, dead.failures) == (3, "dead", 3)


# --- how a handler can end ------------------------------------------------------------------------
def test_an_interrupt_releases_at_once_and_charges_nothing(kind: Any, queue: Queue) -> None:
    put = queue.put("job")
    flaky = Flaky(99, KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        kind.worker(queue, flaky, max_tries=3, wait=wait_none(), release_delay=60)()

    released = queue.inspect(put.id)
    assert released is not None
    assert (flaky.calls, released.failures, released.last_error) == (1, 0, None)
    assert queue.qsize() == 1


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), BaseException("odd")])
def test_other_exits_are_failures_like_others(
    kind: Any, queue: Queue, error: BaseException
) -> None:
    if kind.name == "async" and isinstance(error, GeneratorExit):
        pytest.skip("a coroutine that raises it says that it is being closed")
    put = queue.put("job")
    flaky = Flaky(99, error)

    with pytest.raises(type(error)):
        kind.worker(queue, flaky, max_tries=2, wait=wait_none())()

    dead = queue.inspect(put.id)
    assert dead is not None
    assert (flaky.calls, dead.state, dead.failures) == (2, "dead", 2)


class CommandNotFound(Exception):
    exit_code = 127


@pytest.mark.parametrize(
    "error", [ImportError(), ModuleNotFoundError(), NameError(), CommandNotFound()]
)
def test_a_permanent_error_is_not_tried_again_and_never_released(
    kind: Any, queue: Queue, error: Exception
) -> None:
    put = queue.put("job")
    flaky = Flaky(99, error)

    with pytest.raises(type(error)):
        kind.worker(queue, flaky, max_tries=3, wait=wait_none(), dead_letter_on_failure=False)()

    dead = queue.inspect(put.id)
    assert dead is not None
    assert (flaky.calls, dead.state) == (1, "dead")


def test_a_handler_can_reject_its_message(kind: Any, queue: Queue) -> None:
    put = queue.put("job")
    flaky = Flaky(99, Reject("no such customer"))

    with pytest.raises(Reject):
        kind.worker(queue, flaky, wait=wait_none(), dead_letter_on_failure=False)()

    dead = queue.inspect(put.id)
    assert dead is not None
    assert (flaky.calls, dead.state) == (1, "dead")
    assert dead.last_error is not None
    assert dead.last_error["message"] == "no such customer"


def test_a_handler_can_put_its_message_off_at_no_charge(kind: Any, queue: Queue) -> None:
    put = queue.put("job")

    flaky = Flaky(99, Snooze(60))

    assert kind.worker(queue, flaky, max_tries=3, wait=wait_none())() is None

    assert flaky.calls == 1
    later = queue.inspect(put.id)
    assert later is not None
    assert (later.state, later.failures) == ("ready", 0)
    assert queue.stats().delayed == 1


def test_a_handler_can_say_when_it_is_to_be_tried_again(kind: Any, queue: Queue) -> None:
    put = queue.put("job")
    flaky = Flaky(99, Retry(after=60))

    with pytest.raises(Retry):
        kind.worker(queue, flaky, max_tries=3, wait=wait_none())()

    later = queue.inspect(put.id)
    assert later is not None
    assert (flaky.calls, later.state, later.failures) == (1, "ready", 1)
    assert queue.stats().delayed == 1


def test_a_handler_that_asks_for_a_later_try_has_the_same_budget(kind: Any, queue: Queue) -> None:
    put = queue.put("job")
    queue.release(queue.get_message(), error="elsewhere")

    with pytest.raises(Retry):
        kind.worker(queue, Flaky(99, Retry(after=60)), max_tries=2)()

    dead = queue.inspect(put.id)
    assert dead is not None
    assert (dead.state, dead.failures) == ("dead", 2)


def test_a_handler_that_asks_for_a_later_try_heeds_the_stop(kind: Any, queue: Queue) -> None:
    put = queue.put("job")
    flaky = Flaky(99, Retry(after=0))
    handle = kind.worker(queue, flaky, stop=stop_after_attempt(3))

    states = []
    for _ in range(3):
        with pytest.raises(Retry):
            handle()
        found = queue.inspect(put.id)
        assert found is not None
        states.append((found.state, found.failures))

    assert states == [("ready", 1), ("ready", 2), ("dead", 3)]


def test_a_later_try_that_would_come_after_the_last_moment_is_not_made(
    kind: Any, queue: Queue
) -> None:
    put = queue.put("job")

    with pytest.raises(Retry):
        kind.worker(queue, Flaky(99, Retry(after=60)), stop=stop_before_delay(30))()

    dead = queue.inspect(put.id)
    assert dead is not None
    assert dead.state == "dead"


def test_a_stop_that_cannot_tell_stops(
    kind: Any, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    put = queue.put("job")

    def broken(state: RetryCallState) -> bool:
        raise ZeroDivisionError

    with pytest.raises(Retry):
        kind.worker(queue, Flaky(99, Retry(after=60)), stop=broken)()

    dead = queue.inspect(put.id)
    assert dead is not None
    assert dead.state == "dead"
    assert "ZeroDivisionError" in caplog.text


def test_a_handler_that_asks_for_a_try_without_saying_when_is_tried_at_once(
    kind: Any, queue: Queue
) -> None:
    queue.put("job")

    assert kind.worker(queue, Flaky(2, Retry()), max_tries=3, wait=wait_none())() == 3


def test_a_released_message_waits_for_the_release_delay(kind: Any, queue: Queue) -> None:
    queue.put("job")
    handle = kind.worker(
        queue, Flaky(99), max_tries=1, dead_letter_on_failure=False, release_delay=60
    )

    with pytest.raises(KeyError):
        handle()

    assert queue.stats().delayed == 1


# --- options --------------------------------------------------------------------------------------
def test_the_decorator_goes_before_the_configuration_and_that_before_the_queue(kind: Any) -> None:
    def tries(retry_defaults: Any, config: Any, **options: Any) -> int:
        queue: Queue = PersistentQueue(
            "jobs", store=MemoryQueueStore(), retry_defaults=retry_defaults
        )
        queue.put("job")
        flaky = Flaky(99)
        with pytest.raises(KeyError):
            kind.worker(queue, flaky, config=config, **options)()
        return flaky.calls

    defaults = {"max_tries": 2, "wait": wait_none()}
    assert tries(defaults, None) == 2
    assert tries(defaults, PersistentWorkerConfig(max_tries=3)) == 3
    assert tries(defaults, PersistentWorkerConfig(max_tries=3), max_tries=4) == 4
    assert tries(defaults, PersistentWorkerConfig(max_tries=3), stop=stop_after_attempt(1)) == 1


def test_without_a_configuration_that_of_the_queues_spec_is_used(kind: Any) -> None:
    from localqueue import QueueSpec

    spec = (
        QueueSpec("jobs")
        .with_retry(max_retries=1)
        .with_dead_letter_on_failure(False)
        .with_release_delay(60)
    )
    queue: Queue = PersistentQueue(spec=spec, store=MemoryQueueStore())
    queue.put("job")

    with pytest.raises(KeyError):
        kind.worker(queue, Flaky(99))()

    assert queue.stats().delayed == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"tries": 3}, TypeError),
        ({"key": "a"}, ValueError),
        ({"key_fn": lambda value: "a"}, ValueError),
        ({"max_tries": 2, "stop": stop_after_attempt(2)}, ValueError),
        ({"circuit_breaker_failures": 2}, ValueError),
        ({"min_interval": -1}, ValueError),
        ({"dead_letter_on_failure": True, "dead_letter_on_exhaustion": False}, ValueError),
        ({"rate_limit": 5}, TypeError),
        ({"worker_id": ""}, ValueError),
        ({"config": {}}, TypeError),
        ({"notification_policy": object()}, ValueError),
        ({"store": MemoryAttemptStore(), "store_path": "x"}, ValueError),
    ],
)
def test_options_that_cannot_be_meant_are_refused_when_the_function_is_decorated(
    kind: Any, queue: Queue, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        kind.worker(queue, print, **options)


def test_a_worker_serves_a_queue_and_nothing_else(kind: Any) -> None:
    with pytest.raises(TypeError, match="PersistentQueue"):
        kind.worker("jobs", print)
