"""Work that a handler returns instead of doing it is no success."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from localqueue.errors import ConfigurationError
from localqueue.workers.worker import Worker
from tests.unit.workers.phrases import Stage, dead_errors
from tests.unit.workers.poison import misbehave


async def send(value: Any) -> None:
    raise AssertionError("nobody runs this")


async def stream(value: Any) -> AsyncIterator[Any]:
    yield value


async def returns_the_next(value: Any) -> Any:
    return send(value)


class Promise:
    def __await__(self) -> Iterator[Any]:
        yield


class Yields:
    def __call__(self, value: Any) -> Iterator[Any]:
        yield value


def generate(value: Any) -> Iterator[Any]:
    yield value


@pytest.mark.parametrize(
    ("handler", "what"),
    [
        (lambda value: send(value), "a coroutine that nobody awaited"),
        (lambda value: (each for each in [value]), "a generator that nobody iterates"),
        (lambda value: stream(value), "an asynchronous generator that nobody iterates"),
        (lambda value: Promise(), "a Promise that nobody awaited"),
        (returns_the_next, "a coroutine that nobody awaited"),
    ],
)
@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("listens", [False, True])
def test_work_that_nobody_does_is_a_failure(
    stage: Stage, handler: Callable[[Any], Any], what: str, concurrency: int, listens: bool
) -> None:
    queue = stage.queue(listeners=[lambda event: None] if listens else [])
    queue.put("letter")

    summary = Worker(queue, handler, concurrency=concurrency).run(until_empty=True)
    gc.collect()  # a coroutine that was never awaited would complain, and fail the test

    (dead,) = queue.dead_letters()
    assert (summary.done, summary.dead) == (0, 1)
    assert dead_errors(queue) == ["InvalidResult"]
    assert f"the handler returned {what}" in (dead.last_error or {})["message"]


def test_so_it_is_in_a_process(stage: Stage) -> None:
    queue = stage.queue()
    queue.put(stage.act("return a coroutine"))

    assert Worker(queue, misbehave, kind="process").run(until_empty=True).dead == 1
    assert "nobody awaited" in (queue.dead_letters()[0].last_error or {})["message"]


@pytest.mark.parametrize("result", [0, "", [], {"a": 1}, object(), range(3), iter([1])])
def test_values_are_results(stage: Stage, result: Any) -> None:
    queue = stage.queue()
    queue.put(1)

    async def handler(value: Any) -> Any:
        await asyncio.sleep(0)
        return result

    assert Worker(queue, lambda value: result).run(until_empty=True).done == 1
    queue.put(1)
    assert Worker(queue, handler).run(until_empty=True).done == 1


@pytest.mark.parametrize("handler", [generate, stream, Yields()])
def test_a_generator_function_is_refused_when_the_worker_is_made(
    stage: Stage, handler: Callable[[Any], Any]
) -> None:
    with pytest.raises(ConfigurationError, match="generator function"):
        Worker(stage.queue(), handler)
