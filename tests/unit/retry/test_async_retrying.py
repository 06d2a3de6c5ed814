"""The async retry keeps the same promises, and the event loop goes on."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from typing import Any

import pytest
from tenacity import RetryCallState, stop_after_attempt, wait_none

from localqueue.retry import (
    MemoryAttemptStore,
    PersistentAsyncRetrying,
    PersistentRetryExhausted,
    RetryRecord,
    key_from_argument,
    persistent_async_retry,
)


class Flaky:
    def __init__(self, failures: int, error: BaseException | None = None) -> None:
        self.failures = failures
        self.error = KeyError("flaky") if error is None else error
        self.calls = 0

    async def __call__(self, *args: Any, **kwargs: Any) -> int:
        await asyncio.sleep(0)
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return self.calls


@pytest.fixture
def store() -> MemoryAttemptStore:
    return MemoryAttemptStore()


@pytest.fixture
def retrying(store: MemoryAttemptStore) -> PersistentAsyncRetrying:
    return PersistentAsyncRetrying(store=store, key="a", max_tries=3, wait=wait_none())


def test_it_returns_the_result_of_the_attempt_that_succeeds(
    retrying: PersistentAsyncRetrying, store: MemoryAttemptStore
) -> None:
    assert asyncio.run(retrying(Flaky(2))) == 3
    assert store.load("a") is None


def test_the_budget_is_spent_once_over_several_calls(
    retrying: PersistentAsyncRetrying, store: MemoryAttemptStore
) -> None:
    store.save("a", RetryRecord(1, time.time()))
    flaky = Flaky(99)

    with pytest.raises(KeyError):
        asyncio.run(retrying(flaky))
    with pytest.raises(PersistentRetryExhausted):
        asyncio.run(retrying(flaky))

    assert flaky.calls == 2


@pytest.mark.parametrize(("clear", "left"), [(True, None), (False, 2)])
def test_success_clears_the_key_unless_it_is_to_be_kept(
    store: MemoryAttemptStore, clear: bool, left: int | None
) -> None:
    retrying = PersistentAsyncRetrying(
        store=store, key="a", wait=wait_none(), clear_on_success=clear
    )

    asyncio.run(retrying(Flaky(2)))

    record = store.load("a")
    assert (record and record.attempts) == left


def test_callbacks_and_strategies_may_be_coroutine_functions(store: MemoryAttemptStore) -> None:
    seen: list[tuple[str, int]] = []

    async def before(state: RetryCallState) -> None:
        await asyncio.sleep(0)
        seen.append(("before", state.attempt_number))

    async def stop(state: RetryCallState) -> bool:
        await asyncio.sleep(0)
        seen.append(("stop", state.attempt_number))
        return stop_after_attempt(2)(state)

    async def give_up(state: RetryCallState) -> str:
        await asyncio.sleep(0)
        return f"gave up after {state.attempt_number}"

    retrying = PersistentAsyncRetrying(
        store=store,
        key="a",
        wait=wait_none(),
        before=before,
        stop=stop,
        retry_error_callback=give_up,
    )

    assert asyncio.run(retrying(Flaky(99))) == "gave up after 2"  # type: ignore[comparison-overlap]
    assert seen == [("before", 1), ("stop", 1), ("before", 2), ("stop", 2)]
    record = store.load("a")
    assert record is not None
    assert record.exhausted


def test_cancelling_ends_the_retry_and_charges_nothing(store: MemoryAttemptStore) -> None:
    retrying = PersistentAsyncRetrying(store=store, key="a", wait=wait_none(), count_crashes=True)

    async def cancel_it() -> None:
        began = asyncio.Event()

        async def hang() -> None:
            began.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(retrying(hang))
        await began.wait()
        record = store.load("a")
        assert record is not None
        assert record.attempts == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_it())

    assert store.load("a") is None


def test_with_count_crashes_attempts_that_killed_the_process_spend_the_budget(
    store: MemoryAttemptStore,
) -> None:
    store.save("a", RetryRecord(3, time.time()))
    retrying = PersistentAsyncRetrying(store=store, key="a", max_tries=3, count_crashes=True)
    flaky = Flaky(0)

    with pytest.raises(PersistentRetryExhausted):
        asyncio.run(retrying(flaky))

    assert flaky.calls == 0
    record = store.load("a")
    assert record is not None
    assert record.exhausted


def test_the_store_is_never_asked_in_the_thread_of_the_event_loop() -> None:
    asked_in: set[int] = set()

    class Watched:
        kept: dict[str, RetryRecord]

        def __init__(self) -> None:
            self.kept = {}

        def load(self, key: str) -> RetryRecord | None:
            asked_in.add(threading.get_ident())
            return self.kept.get(key)

        def save(self, key: str, record: RetryRecord) -> None:
            asked_in.add(threading.get_ident())
            self.kept[key] = record

        def delete(self, key: str) -> None:
            asked_in.add(threading.get_ident())
            self.kept.pop(key, None)

        def prune_exhausted(self, *, older_than: float, now: float) -> int:
            return 0

    retrying = PersistentAsyncRetrying(store=Watched(), key="a", wait=wait_none())

    asyncio.run(retrying(Flaky(1)))

    assert asked_in
    assert threading.get_ident() not in asked_in


def test_calls_at_the_same_time_keep_their_own_count(store: MemoryAttemptStore) -> None:
    made: dict[str, int] = {}

    @persistent_async_retry(
        store=store, key_fn=key_from_argument("job"), max_tries=3, wait=wait_none()
    )
    async def run(job: str) -> str:
        await asyncio.sleep(0)
        made[job] = made.get(job, 0) + 1
        if job.startswith("bad") or made[job] < 2:
            raise KeyError(job)
        return job

    async def run_all() -> list[str | BaseException]:
        jobs = [run(f"{kind} {n}") for n in range(5) for kind in ("good", "bad")]
        return await asyncio.gather(*jobs, return_exceptions=True)

    answers = asyncio.run(run_all())

    assert answers[::2] == [f"good {n}" for n in range(5)]
    assert all(isinstance(answer, KeyError) for answer in answers[1::2])
    assert {count for job, count in made.items() if job.startswith("bad")} == {3}
    assert {count for job, count in made.items() if job.startswith("good")} == {2}


def test_a_decorated_function_is_a_coroutine_function_and_keeps_its_signature(
    store: MemoryAttemptStore,
) -> None:
    @persistent_async_retry(store=store, key_fn=key_from_argument("job"), wait=wait_none())
    async def run(job: str, *, fast: bool = False) -> str:
        """Run a job."""
        return job

    offers: Any = run
    assert inspect.iscoroutinefunction(run)
    assert (run.__name__, run.__doc__) == ("run", "Run a job.")
    assert list(inspect.signature(run).parameters) == ["job", "fast"]
    assert asyncio.run(offers.retry_with(max_tries=1)("x")) == "x"
    assert offers.statistics == {}
    assert asyncio.run(run("x")) == "x"
    assert offers.statistics["attempt_number"] == 1
