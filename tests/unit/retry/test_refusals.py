"""What a persistent retry refuses before anything is called."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator
from typing import Any

import pytest
from tenacity import retry_if_exception_type, stop_after_attempt, wait_none

from localqueue.errors import ConfigurationError, WrongType
from localqueue.retry import (
    MemoryAttemptStore,
    PersistentAsyncRetrying,
    PersistentRetrying,
    idempotency_key_from_id,
    key_from_argument,
    key_from_attr,
    persistent_async_retry,
    persistent_retry,
)


async def coroutine() -> str:
    return "done"


class Called:
    async def __call__(self) -> str:
        return "done"


def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    "function",
    [coroutine, functools.partial(coroutine), Called()],
    ids=lambda given: type(given).__name__,
)
def test_a_coroutine_function_is_for_the_async_retry(function: Any) -> None:
    store = MemoryAttemptStore()
    with pytest.raises(ConfigurationError, match="use persistent_async_retry"):
        persistent_retry(store=store, key="a")(function)
    with pytest.raises(ConfigurationError, match="PersistentAsyncRetrying"):
        PersistentRetrying(store=store, key="a")(function)

    assert asyncio.run(PersistentAsyncRetrying(store=store, key="a")(function)) == "done"


@pytest.mark.parametrize("decorator", [persistent_retry, persistent_async_retry])
def test_a_generator_function_is_refused(decorator: Any) -> None:
    with pytest.raises(ConfigurationError, match="generator function"):
        decorator(key="a")(generator)


# --- strategies -----------------------------------------------------------------------------------
@pytest.mark.parametrize("make", [PersistentRetrying, PersistentAsyncRetrying])
@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"stop": 3}, "max_tries="),
        ({"stop": True}, "max_tries="),
        ({"wait": "3"}, "a number of seconds"),
        ({"wait": True}, "a number of seconds"),
        ({"wait": wait_none}, "a number of seconds"),
        ({"retry": OSError}, "retry_if_exception_type"),
        ({"retry": (OSError, ValueError)}, "retry_if_exception_type"),
        ({"before": "log"}, "before must be callable"),
        ({"after": 1}, "after must be callable"),
        ({"before_sleep": 1}, "before_sleep must be callable"),
        ({"sleep": 1}, "sleep must be callable"),
        ({"retry_error_callback": "x"}, "retry_error_callback must be callable"),
    ],
    ids=str,
)
def test_what_tenacity_could_not_call_is_refused(
    make: Any, options: dict[str, Any], hint: str
) -> None:
    with pytest.raises(WrongType, match=hint):
        make(key="a", **options)
    with pytest.raises(WrongType, match=hint):
        make(key="a").copy(**options)


def test_what_tenacity_calls_is_taken() -> None:
    PersistentRetrying(
        key="a",
        stop=stop_after_attempt(3),
        wait=lambda state: 0,
        retry=retry_if_exception_type(OSError),
        before=None,
        after=print,
    )


@pytest.mark.parametrize("seconds", [3, 0.5, 0])
def test_a_wait_may_be_a_number_of_seconds(seconds: float) -> None:
    waited: list[float] = []

    def fail() -> None:
        raise OSError

    options: dict[str, Any] = {
        "store": MemoryAttemptStore(),
        "wait": seconds,
        "max_tries": 3,
        "sleep": waited.append,
        "retry_error_callback": lambda state: None,
    }
    PersistentRetrying(key="a", **options)(fail)
    PersistentRetrying(key="b", **options).copy(max_tries=2)(fail)

    assert waited == [seconds] * 3


# --- keys -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "key_fn",
    [key_from_argument("nope"), key_from_attr("nope", "id"), idempotency_key_from_id("nope")],
    ids=["argument", "attribute", "id"],
)
@pytest.mark.parametrize("decorator", [persistent_retry, persistent_async_retry])
def test_a_function_without_the_argument_of_the_key_is_refused(decorator: Any, key_fn: Any) -> None:
    def plain(job_id: str, *rest: Any) -> None: ...

    with pytest.raises(ConfigurationError, match=r"plain\(.*has no argument 'nope'"):
        decorator(key_fn=key_fn)(plain)


def test_a_function_that_may_be_given_the_argument_is_taken() -> None:
    store = MemoryAttemptStore()

    def any_name(**names: str) -> str:
        return names["job_id"]

    def inner(value: int) -> int:
        return value

    @functools.wraps(inner)
    def takes_it_for_itself(value: int, *, job_id: str) -> int:
        return inner(value)

    retry = persistent_retry(store=store, key_fn=key_from_argument("job_id"))

    assert retry(any_name)(job_id="a") == "a"
    assert retry(takes_it_for_itself)(1, job_id="a") == 1
