"""What PersistentRetrying and its decorator promise."""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tenacity import (
    RetryCallState,
    RetryError,
    TryAgain,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
    stop_after_delay,
    wait_none,
)

from localqueue.errors import LocalQueueError
from localqueue.retry import (
    MemoryAttemptStore,
    PersistentRetryExhausted,
    PersistentRetrying,
    RetryRecord,
    SQLiteAttemptStore,
    key_from_argument,
    persistent_retry,
)


class Flaky:
    """Fails so many times, then returns how often it was called."""

    def __init__(self, failures: int, error: BaseException | None = None) -> None:
        self.failures = failures
        self.error = KeyError("flaky") if error is None else error
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return self.calls


@pytest.fixture
def store() -> MemoryAttemptStore:
    return MemoryAttemptStore()


@pytest.fixture
def retrying(store: MemoryAttemptStore) -> PersistentRetrying:
    return PersistentRetrying(store=store, key="a", max_tries=3, wait=wait_none())


# --- counting -------------------------------------------------------------------------------------
def test_it_returns_the_result_of_the_attempt_that_succeeds(retrying: PersistentRetrying) -> None:
    assert retrying(Flaky(2)) == 3


def test_each_failure_is_recorded_before_the_pause(store: MemoryAttemptStore) -> None:
    seen: list[RetryRecord | None] = []
    before = time.time()
    retrying = PersistentRetrying(
        store=store, key="a", max_tries=3, sleep=lambda _: seen.append(store.load("a"))
    )

    retrying(Flaky(2))

    assert [record and record.attempts for record in seen] == [1, 2]
    assert all(record and not record.exhausted for record in seen)
    assert all(record and before <= record.first_attempt_at <= time.time() for record in seen)


def test_the_error_of_the_last_attempt_reaches_the_caller_and_the_key_is_exhausted(
    retrying: PersistentRetrying,
) -> None:
    flaky = Flaky(99)

    with pytest.raises(KeyError, match="flaky"):
        retrying(flaky)

    assert flaky.calls == 3
    record = retrying.get_record("a")
    assert record is not None
    assert (record.attempts, record.exhausted) == (3, True)


def test_an_exhausted_key_is_refused_before_the_function_runs(
    retrying: PersistentRetrying, store: MemoryAttemptStore
) -> None:
    store.save("a", RetryRecord(3, time.time(), exhausted=True))
    flaky = Flaky(0)

    with pytest.raises(PersistentRetryExhausted) as refused:
        retrying(flaky)

    assert flaky.calls == 0
    assert (refused.value.key, refused.value.attempts) == ("a", 3)
    assert issubclass(PersistentRetryExhausted, RuntimeError)
    assert issubclass(PersistentRetryExhausted, LocalQueueError)
    assert "'a'" in str(refused.value)


def test_reset_makes_the_budget_whole_again(
    retrying: PersistentRetrying, store: MemoryAttemptStore
) -> None:
    store.save("a", RetryRecord(3, time.time(), exhausted=True))

    retrying.reset("a")

    assert retrying(Flaky(2)) == 3


def test_attempts_of_an_earlier_life_are_counted(
    retrying: PersistentRetrying, store: MemoryAttemptStore
) -> None:
    store.save("a", RetryRecord(2, time.time()))
    flaky = Flaky(99)

    with pytest.raises(KeyError):
        retrying(flaky)

    assert flaky.calls == 1


def test_an_error_that_is_not_to_be_retried_leaves_no_record(store: MemoryAttemptStore) -> None:
    retrying = PersistentRetrying(
        store=store, key="a", retry=retry_if_exception_type(OSError), wait=wait_none()
    )

    with pytest.raises(KeyError):
        retrying(Flaky(1))

    assert store.load("a") is None


def test_an_interrupt_is_not_retried_and_not_counted(
    retrying: PersistentRetrying, store: MemoryAttemptStore
) -> None:
    with pytest.raises(KeyboardInterrupt):
        retrying(Flaky(1, KeyboardInterrupt()))

    assert store.load("a") is None


@pytest.mark.parametrize(("clear", "left"), [(True, None), (False, 2)])
def test_success_clears_the_key_unless_it_is_to_be_kept(
    store: MemoryAttemptStore, clear: bool, left: int | None
) -> None:
    PersistentRetrying(store=store, key="a", wait=wait_none(), clear_on_success=clear)(Flaky(2))

    record = store.load("a")
    assert (record and record.attempts) == left


def test_success_clears_what_others_recorded_meanwhile(store: MemoryAttemptStore) -> None:
    def overtaken() -> None:
        store.save("a", RetryRecord(1, time.time()))

    PersistentRetrying(store=store, key="a")(overtaken)

    assert store.load("a") is None


def test_without_a_stop_it_retries_until_it_succeeds(store: MemoryAttemptStore) -> None:
    assert PersistentRetrying(store=store, key="a", wait=wait_none())(Flaky(50)) == 51


def test_the_default_waits_grow_from_two_to_ten_seconds(store: MemoryAttemptStore) -> None:
    waits: list[float] = []

    PersistentRetrying(store=store, key="a", sleep=waits.append)(Flaky(6))

    assert [float(wait) for wait in waits] == [2, 2, 4, 8, 10, 10]


def test_a_handler_that_raises_StopIteration_is_retried_like_any_other(  # noqa: N802
    retrying: PersistentRetrying,
) -> None:
    with pytest.raises(StopIteration):
        retrying(Flaky(99, StopIteration()))

    record = retrying.get_record("a")
    assert record is not None
    assert record.attempts == 3


# --- crashes --------------------------------------------------------------------------------------
def test_with_count_crashes_an_attempt_is_recorded_before_it_begins(
    store: MemoryAttemptStore,
) -> None:
    seen: list[RetryRecord | None] = []

    def look() -> None:
        seen.append(store.load("a"))
        if len(seen) < 3:
            raise KeyError

    PersistentRetrying(store=store, key="a", wait=wait_none(), count_crashes=True)(look)

    assert [record and record.attempts for record in seen] == [1, 2, 3]
    assert store.load("a") is None


def test_with_count_crashes_attempts_that_killed_the_process_spend_the_budget(
    store: MemoryAttemptStore,
) -> None:
    retrying = PersistentRetrying(store=store, key="a", max_tries=3, count_crashes=True)
    store.save("a", RetryRecord(3, time.time()))  # what three killed processes leave
    flaky = Flaky(0)

    with pytest.raises(PersistentRetryExhausted):
        retrying(flaky)

    assert flaky.calls == 0
    record = store.load("a")
    assert record is not None
    assert (record.attempts, record.exhausted) == (3, True)


def test_with_count_crashes_failures_are_counted_once(store: MemoryAttemptStore) -> None:
    retrying = PersistentRetrying(
        store=store, key="a", max_tries=3, wait=wait_none(), count_crashes=True
    )
    flaky = Flaky(99)

    with pytest.raises(KeyError):
        retrying(flaky)

    record = store.load("a")
    assert record is not None
    assert (flaky.calls, record.attempts, record.exhausted) == (3, 3, True)


@pytest.mark.parametrize("recorded", [0, 1])
def test_with_count_crashes_what_is_not_counted_is_taken_back(
    store: MemoryAttemptStore, recorded: int
) -> None:
    if recorded:
        store.save("a", RetryRecord(recorded, 5.0))
    retrying = PersistentRetrying(store=store, key="a", max_tries=3, count_crashes=True)

    with pytest.raises(KeyboardInterrupt):
        retrying(Flaky(1, KeyboardInterrupt()))

    assert store.load("a") == (RetryRecord(recorded, 5.0) if recorded else None)


def test_with_count_crashes_a_success_that_is_not_cleared_is_not_counted(
    store: MemoryAttemptStore,
) -> None:
    PersistentRetrying(
        store=store, key="a", wait=wait_none(), count_crashes=True, clear_on_success=False
    )(Flaky(1))

    record = store.load("a")
    assert record is not None
    assert record.attempts == 1


# --- Tenacity -------------------------------------------------------------------------------------
def test_callbacks_see_recorded_attempts_and_the_time_of_the_first(
    store: MemoryAttemptStore,
) -> None:
    first = time.time() - 100.0
    store.save("a", RetryRecord(2, first))
    seen: list[tuple[str, int, float]] = []

    def note(what: str) -> Callable[[RetryCallState], None]:
        return lambda state: seen.append((what, state.attempt_number, state.start_time))

    PersistentRetrying(
        store=store,
        key="a",
        wait=wait_none(),
        before=note("before"),
        after=note("after"),
        before_sleep=note("before_sleep"),
    )(Flaky(1))

    assert seen == [
        ("before", 3, first), ("after", 3, first), ("before_sleep", 3, first), ("before", 4, first),
    ]  # fmt: skip


def test_time_since_the_first_attempt_spans_restarts(store: MemoryAttemptStore) -> None:
    store.save("a", RetryRecord(1, time.time() - 100.0))
    seen: list[float | None] = []
    flaky = Flaky(99)

    def stop(state: RetryCallState) -> bool:
        seen.append(state.seconds_since_start)
        return stop_after_delay(60)(state)

    with pytest.raises(KeyError):
        PersistentRetrying(store=store, key="a", wait=wait_none(), stop=stop)(flaky)

    assert flaky.calls == 1
    assert seen[0] == pytest.approx(100.0, abs=5.0)


def test_a_clock_that_was_set_back_does_not_make_time_negative(store: MemoryAttemptStore) -> None:
    store.save("a", RetryRecord(1, time.time() + 5000.0))
    seen: list[float | None] = []

    PersistentRetrying(
        store=store,
        key="a",
        wait=wait_none(),
        after=lambda state: seen.append(state.seconds_since_start),
    )(Flaky(1))

    assert seen[0] is not None
    assert 0.0 <= seen[0] < 5.0


def test_results_can_be_retried_too(store: MemoryAttemptStore) -> None:
    answers = iter([None, None, "there"])
    retrying = PersistentRetrying(
        store=store, key="a", max_tries=5, wait=wait_none(), retry=retry_if_result(lambda r: not r)
    )

    assert retrying(lambda: next(answers)) == "there"


def test_TryAgain_counts_like_a_failure(retrying: PersistentRetrying) -> None:  # noqa: N802
    with pytest.raises(TryAgain):
        retrying(Flaky(99, TryAgain()))

    record = retrying.get_record("a")
    assert record is not None
    assert (record.attempts, record.exhausted) == (3, True)


def test_a_retry_error_callback_gives_the_result_and_the_key_is_exhausted(
    store: MemoryAttemptStore,
) -> None:
    retrying = PersistentRetrying(
        store=store,
        key="a",
        max_tries=2,
        wait=wait_none(),
        retry_error_callback=lambda state: f"gave up after {state.attempt_number}",
    )

    answer: Any = retrying(Flaky(99))

    assert answer == "gave up after 2"
    record = store.load("a")
    assert record is not None
    assert record.exhausted


def test_reraise_false_raises_tenacitys_error(store: MemoryAttemptStore) -> None:
    retrying = PersistentRetrying(
        store=store, key="a", max_tries=2, wait=wait_none(), reraise=False
    )

    with pytest.raises(RetryError):
        retrying(Flaky(99))


def test_a_retry_that_is_not_enabled_only_calls(store: MemoryAttemptStore) -> None:
    store.save("a", RetryRecord(3, time.time(), exhausted=True))
    flaky = Flaky(1)

    with pytest.raises(KeyError):
        PersistentRetrying(store=store, key="a", enabled=False)(flaky)

    assert flaky.calls == 1


def test_statistics_count_recorded_attempts(
    retrying: PersistentRetrying, store: MemoryAttemptStore
) -> None:
    store.save("a", RetryRecord(1, time.time()))

    retrying(Flaky(1))

    assert retrying.statistics["attempt_number"] == 3


# --- options --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"store": MemoryAttemptStore(), "store_path": "x.sqlite3"}, ValueError),
        ({"max_tries": 3, "stop": stop_after_attempt(3)}, ValueError),
        ({"max_tries": 0}, ValueError),
        ({"max_tries": True}, ValueError),
        ({"key": "a", "key_fn": key_from_argument("b")}, ValueError),
        ({"key_fn": "b"}, TypeError),
        ({"tries": 3}, TypeError),
    ],
)
def test_options_that_cannot_be_meant_are_refused_when_the_retry_is_made(
    options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error) as refused:
        PersistentRetrying(**options)

    assert isinstance(refused.value, LocalQueueError)


def test_without_a_key_the_function_is_not_called(store: MemoryAttemptStore) -> None:
    flaky = Flaky(0)

    with pytest.raises(ValueError, match="key"):
        PersistentRetrying(store=store)(flaky)

    assert flaky.calls == 0


def test_a_store_path_names_a_file(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "retries.sqlite3"
    retrying = PersistentRetrying(store_path=path, key="a", max_tries=2, wait=wait_none())

    with pytest.raises(KeyError):
        retrying(Flaky(99))

    with SQLiteAttemptStore(path) as store:
        record = store.load("a")
    assert record is not None
    assert record.exhausted


def test_a_copy_keeps_everything_but_what_is_changed(
    retrying: PersistentRetrying, store: MemoryAttemptStore
) -> None:
    copy = retrying.copy(max_tries=5)
    flaky = Flaky(99)

    with pytest.raises(KeyError):
        copy(flaky)

    assert flaky.calls == 5
    assert store.load("a") is not None


@pytest.mark.parametrize(
    ("made", "change"),
    [
        ({"max_tries": 3}, {"stop": stop_after_attempt(2)}),
        ({"stop": stop_after_attempt(3)}, {"max_tries": 2}),
        ({"key_fn": key_from_argument("x"), "max_tries": 2}, {"key": "a"}),
    ],
)
def test_one_of_two_ways_to_say_a_thing_replaces_the_other_in_a_copy(
    store: MemoryAttemptStore, made: dict[str, Any], change: dict[str, Any]
) -> None:
    options: dict[str, Any] = {"store": store, "key": "a", "wait": wait_none()} | made
    if "key_fn" in made:
        del options["key"]
    flaky = Flaky(99)

    with pytest.raises(KeyError):
        PersistentRetrying(**options).copy(**change)(flaky)

    assert flaky.calls == 2
    record = store.load("a")
    assert record is not None
    assert record.exhausted


# --- the decorator --------------------------------------------------------------------------------
def test_a_decorated_function_keeps_its_name_documentation_and_signature(
    store: MemoryAttemptStore,
) -> None:
    @persistent_retry(store=store, key_fn=key_from_argument("job_id"))
    def run(job_id: str, *, fast: bool = False) -> str:
        """Run a job."""
        return job_id

    assert (run.__name__, run.__doc__) == ("run", "Run a job.")
    assert list(inspect.signature(run).parameters) == ["job_id", "fast"]
    assert run("x") == "x"


def test_a_decorated_function_has_its_retry_statistics_and_a_way_to_change_it(
    store: MemoryAttemptStore,
) -> None:
    calls: list[str] = []

    @persistent_retry(store=store, key_fn=key_from_argument("job"), max_tries=2, wait=wait_none())
    def run(job: str) -> None:
        calls.append(job)
        raise KeyError(job)

    offers: Any = run
    with pytest.raises(KeyError):
        run("a")
    assert offers.statistics["attempt_number"] == 2
    with pytest.raises(KeyError):
        offers.retry_with(max_tries=4)("b")

    assert calls == ["a"] * 2 + ["b"] * 4
    assert isinstance(offers.retry, PersistentRetrying)
    record = store.load("b")
    assert record is not None
    assert record.attempts == 4


def test_keys_of_one_function_have_budgets_of_their_own(store: MemoryAttemptStore) -> None:
    @persistent_retry(store=store, key_fn=key_from_argument("job"), max_tries=2, wait=wait_none())
    def run(job: str) -> str:
        if job == "bad":
            raise KeyError
        return job

    with pytest.raises(KeyError):
        run("bad")

    assert run("good") == "good"
    with pytest.raises(PersistentRetryExhausted):
        run("bad")


def test_calls_inside_each_other_do_not_disturb_each_other(store: MemoryAttemptStore) -> None:
    depths: list[int] = []

    @persistent_retry(store=store, key_fn=key_from_argument("depth"), max_tries=3, wait=wait_none())
    def run(depth: int) -> int:
        depths.append(depth)
        if depth < 2:
            run(depth + 1)
        if depths.count(depth) < 2:
            raise KeyError(depth)
        return depth

    assert run(0) == 0
    assert store.load("0") is None
    assert store.load("2") is None


class Simple:
    """The four methods of a store, and no more."""

    def __init__(self) -> None:
        self.records: dict[str, RetryRecord] = {}
        self.saving, self.go_on = threading.Event(), threading.Event()

    def load(self, key: str) -> RetryRecord | None:
        return self.records.get(key)

    def save(self, key: str, record: RetryRecord) -> None:
        if key == "slow":
            self.saving.set()
            assert self.go_on.wait(30)
        self.records[key] = record

    def delete(self, key: str) -> None:
        self.records.pop(key, None)

    def prune_exhausted(self, *, older_than: float, now: float) -> int:
        return 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_what_a_thread_of_its_parent_did() -> None:
    store = Simple()

    def fail_under(key: str) -> None:
        with contextlib.suppress(KeyError):
            PersistentRetrying(store=store, key=key, max_tries=1)(Flaky(9), None)

    thread = threading.Thread(target=fail_under, args=("slow",))
    thread.start()
    assert store.saving.wait(30)

    child = os.fork()
    if child == 0:
        signal.alarm(20)  # or it would hang for ever
        fail_under("child")
        os._exit(0 if "child" in store.records else 1)
    store.go_on.set()
    thread.join()

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
