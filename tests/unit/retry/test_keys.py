"""Which key a call is retried under."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from localqueue.errors import LocalQueueError
from localqueue.retry import (
    MemoryAttemptStore,
    PersistentRetrying,
    idempotency_key_from_id,
    key_from_argument,
    key_from_attr,
)


@dataclass
class Task:
    id: Any
    name: str = "render"


def used_key(key_fn: Any, fn: Any, *args: Any, **kwargs: Any) -> str:
    """The key under which the call is recorded."""
    store = MemoryAttemptStore()
    PersistentRetrying(
        store=store,
        key_fn=key_fn,
        max_tries=1,
        retry_error_callback=lambda state: None,
    )(fn, *args, **kwargs)
    (key,) = store._records
    return key


def fail(job_id: Any = "default", *rest: Any, task: Task | None = None, **more: Any) -> None:
    raise KeyError


@pytest.mark.parametrize(
    ("args", "kwargs", "key"),
    [
        (("x",), {}, "x"),
        ((), {"job_id": "y"}, "y"),
        ((), {}, "default"),
        ((7,), {}, "7"),
        ((UUID(int=1),), {}, "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_an_argument_is_found_however_it_is_passed_and_also_at_its_default(
    args: tuple[Any, ...], kwargs: dict[str, Any], key: str
) -> None:
    assert used_key(key_from_argument("job_id"), fail, *args, **kwargs) == key


def test_an_argument_that_is_only_a_keyword_of_the_call_is_found() -> None:
    assert used_key(key_from_argument("other"), fail, "x", other="z") == "z"


def test_an_argument_of_a_method_is_found() -> None:
    class Service:
        def run(self, job_id: str) -> None:
            raise KeyError

    assert used_key(key_from_argument("job_id"), Service().run, "x") == "x"


@pytest.mark.parametrize(
    ("key_fn", "key"),
    [
        (key_from_attr("task", "name"), "render"),
        (key_from_attr("task", "name", prefix="video"), "video:render"),
        (idempotency_key_from_id("task"), "17"),
        (idempotency_key_from_id("task", prefix="video"), "video:17"),
    ],
)
def test_an_attribute_of_an_argument_can_be_the_key(key_fn: Any, key: str) -> None:
    assert used_key(key_fn, fail, task=Task(17)) == key


@pytest.mark.parametrize(
    ("key_fn", "kwargs"),
    [
        (key_from_argument("nothing"), {}),
        (key_from_argument("job_id"), {"job_id": None}),
        (key_from_argument("job_id"), {"job_id": ""}),
        (key_from_attr("task", "colour"), {"task": Task(1)}),
        (idempotency_key_from_id("task"), {"task": Task(None)}),
        (lambda **_: None, {}),
    ],
)
def test_a_call_without_a_key_is_refused_and_the_function_not_called(
    key_fn: Any, kwargs: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="there is no retry key") as refused:
        used_key(key_fn, fail, **kwargs)

    assert isinstance(refused.value, LocalQueueError)


def test_a_function_of_ones_own_gets_the_arguments_of_the_call() -> None:
    assert used_key(lambda job_id, **_: f"job {job_id}", fail, 3, colour="red") == "job 3"


def test_a_function_of_ones_own_may_ask_for_the_function_too() -> None:
    def key(fn: Any, args: Any, kwargs: Any) -> str:
        return f"{fn.__name__} {args} {kwargs}"

    assert used_key(key, fail, 3, colour="red") == "fail (3,) {'colour': 'red'}"


@pytest.mark.parametrize(
    "make",
    [
        lambda: key_from_argument(""),
        lambda: key_from_attr("", "id"),
        lambda: key_from_attr("task", ""),
        lambda: key_from_attr("task", "id", prefix=""),
        lambda: idempotency_key_from_id("task", prefix=""),
    ],
)
def test_empty_names_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="not empty"):
        make()
