"""What decorated workers refuse before a message is touched, and what they say about failures."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tenacity import retry_if_result, stop_after_attempt, wait_none

from localqueue import (
    AtMostOnceDelivery,
    MemoryQueueStore,
    PersistentQueue,
    PersistentWorkerConfig,
)
from localqueue.errors import ConfigurationError, InvalidArgument, InvalidResult, WrongType
from localqueue.worker import persistent_async_worker, persistent_worker

Queue = PersistentQueue[Any]


async def coroutine(value: Any) -> None: ...


def generator(value: Any) -> Iterator[Any]:
    yield value


async def async_generator(value: Any) -> AsyncIterator[Any]:
    yield value


def plain(value: Any) -> Any:
    return value


class Called:
    async def __call__(self, value: Any) -> None: ...

    async def method(self, value: Any) -> None: ...


# --- functions of the wrong kind ------------------------------------------------------------------
@pytest.mark.parametrize(
    "function",
    [coroutine, functools.partial(coroutine), Called(), Called().method],
    ids=lambda given: type(given).__name__,
)
def test_a_coroutine_function_is_for_the_async_worker(queue: Queue, function: Any) -> None:
    with pytest.raises(ConfigurationError, match="use persistent_async_worker"):
        persistent_worker(queue)(function)

    persistent_async_worker(queue)(function)


def test_a_plain_function_is_for_the_other_worker(queue: Queue) -> None:
    with pytest.raises(ConfigurationError, match="use persistent_worker"):
        persistent_async_worker(queue)(plain)


@pytest.mark.parametrize("worker", [persistent_worker, persistent_async_worker])
@pytest.mark.parametrize("function", [generator, async_generator])
def test_a_generator_function_is_refused(queue: Queue, worker: Any, function: Any) -> None:
    with pytest.raises(ConfigurationError, match="generator function"):
        worker(queue)(function)


@pytest.mark.parametrize("function", [coroutine, generator, async_generator])
def test_a_handler_that_returns_work_to_be_done_has_failed(
    kind: Any, queue: Queue, function: Any
) -> None:
    made: list[Any] = []

    def handler(value: Any) -> Any:
        made.append(function(value))
        return made[-1]

    put = queue.put("job")

    with pytest.raises(InvalidResult, match="persistent_async_worker"):
        kind.worker(queue, handler)()

    dead = queue.inspect(put.id)
    assert dead is not None
    assert dead.state == "dead"
    assert dead.last_error is not None
    assert dead.last_error["type"] == "InvalidResult"
    made.clear()
    gc.collect()  # a coroutine that was not closed would warn here


def test_also_under_at_most_once_delivery(kind: Any) -> None:
    queue: Queue = PersistentQueue(
        "jobs", store=MemoryQueueStore(), delivery_policy=AtMostOnceDelivery()
    )
    queue.put("job")

    with pytest.raises(InvalidResult):
        kind.worker(queue, lambda value: coroutine(value))()


# --- arguments ------------------------------------------------------------------------------------
def test_a_handler_that_cannot_take_the_value_is_refused(queue: Queue) -> None:
    def no_argument() -> None: ...

    def only_by_name(*, value: Any) -> None: ...

    async def no_argument_async() -> None: ...

    for function in (no_argument, only_by_name):
        with pytest.raises(ConfigurationError, match="cannot be called with the value"):
            persistent_worker(queue)(function)
    with pytest.raises(ConfigurationError, match="cannot be called with the value"):
        persistent_async_worker(queue)(no_argument_async)


def test_a_call_that_the_handler_cannot_take_leases_nothing(queue: Queue) -> None:
    def handler(value: Any, more: Any, *, fast: bool = False) -> Any:
        return (value, more, fast)

    async def handler_async(value: Any, more: Any, *, fast: bool = False) -> Any:
        return (value, more, fast)

    work: Any = persistent_worker(queue, max_tries=1)(handler)
    work_async: Any = persistent_async_worker(queue, max_tries=1)(handler_async)
    put = queue.put("job")

    for call in (work, lambda *a, **k: asyncio.run(work_async(*a, **k))):
        for args, kwargs in (((), {}), ((1, 2), {}), ((1,), {"slow": True})):
            with pytest.raises(TypeError, match="cannot be called so"):
                call(*args, **kwargs)
    seen = queue.inspect(put.id)
    assert seen is not None
    assert (seen.attempts, seen.failures, seen.state) == (0, 0, "ready")
    assert work(1, fast=True) == ("job", 1, True)


@pytest.mark.parametrize("function", [print, dict, functools.partial(plain), int])
def test_a_handler_that_may_take_the_value_is_taken(queue: Queue, function: Any) -> None:
    persistent_worker(queue)(function)


def test_what_a_wrapper_takes_counts_and_not_what_it_wraps(queue: Queue) -> None:
    def handler(session: str, value: Any, *, request: str) -> Any:
        return (session, value, request)

    @functools.wraps(handler)
    def wrapper(*args: Any) -> Any:
        return handler("session", *args, request="r")

    queue.put("job")

    assert persistent_worker(queue)(wrapper)() == ("session", "job", "r")


# --- options --------------------------------------------------------------------------------------
@pytest.mark.parametrize("option", ["timeout", "concurrency", "block", "until_empty", "backoff"])
@pytest.mark.parametrize("worker", [persistent_worker, persistent_async_worker])
def test_an_option_of_the_other_kind_of_worker_is_refused_with_a_pointer_to_it(
    queue: Queue, worker: Any, option: str
) -> None:
    with pytest.raises(TypeError, match=rf"no {option}=; Worker of localqueue\.workers"):
        worker(queue, **{option: 3})


@pytest.mark.parametrize(
    "options",
    [{"stop": 3}, {"retry": ValueError}, {"wait": "3"}, {"wait": wait_none}, {"before_sleep": 1}],
    ids=str,
)
def test_retry_options_that_cannot_be_called_are_refused_at_the_function(
    kind: Any, queue: Queue, options: dict[str, Any]
) -> None:
    by_default: Queue = PersistentQueue("jobs", store=MemoryQueueStore(), retry_defaults=options)

    with pytest.raises(WrongType, match="must be callable"):
        kind.worker(queue, plain, **options)
    with pytest.raises(WrongType, match="must be callable"):
        kind.worker(queue, plain, config=PersistentWorkerConfig(**options))
    with pytest.raises(WrongType, match="must be callable"):
        kind.worker(by_default, plain)


def test_a_negative_wait_is_refused(kind: Any, queue: Queue) -> None:
    with pytest.raises(InvalidArgument, match="wait"):
        kind.worker(queue, plain, wait=-1)


def test_a_wait_may_be_a_number_of_seconds(kind: Any, queue: Queue) -> None:
    waited: list[float] = []

    def handler(value: Any) -> None:
        raise OSError

    queue.put("job")
    work = kind.worker(queue, handler, wait=1.5, max_tries=3, sleep=waited.append)

    with pytest.raises(OSError):  # noqa: PT011
        work()

    assert waited == [1.5, 1.5]


# --- the log --------------------------------------------------------------------------------------
def test_each_try_that_is_followed_by_another_is_logged_in_one_line(
    kind: Any, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    paused: list[int] = []

    def handler(value: Any) -> None:
        raise OSError("no\nroute")

    put = queue.put("job")
    work = kind.worker(
        queue,
        handler,
        wait=0.25,
        max_tries=3,
        sleep=lambda seconds: None,
        before_sleep=lambda state: paused.append(state.attempt_number),
    )

    with caplog.at_level(logging.WARNING, "localqueue.worker"), pytest.raises(OSError):  # noqa: PT011
        work()

    lines = [(r.levelname, r.getMessage()) for r in caplog.records if r.name == "localqueue.worker"]
    begun = f"message {put.id} of 'jobs': try"
    assert lines == [
        ("WARNING", f"{begun} 1 failed, the next one is in 0.25 s: OSError: no route"),
        ("WARNING", f"{begun} 2 failed, the next one is in 0.25 s: OSError: no route"),
    ]
    assert paused == [1, 2]  # who gave a callback is called as well


def test_a_result_that_is_retried_is_logged_too(
    kind: Any, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    results = iter([None, "done"])
    queue.put("job")
    work = kind.worker(
        queue,
        lambda value: next(results),
        retry=retry_if_result(lambda result: result is None),
        stop=stop_after_attempt(3),
        wait=wait_none(),
    )

    with caplog.at_level(logging.WARNING, "localqueue.worker"):
        assert work() == "done"

    (line,) = [r.getMessage() for r in caplog.records if r.name == "localqueue.worker"]
    assert line.endswith("try 1 failed, the next one is in 0 s: the result was not accepted")
