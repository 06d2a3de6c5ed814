"""What a handler returns is a result, and not work that nobody does."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from localqueue.errors import ConfigurationError, InvalidResult

_NOT_BEGUN = frozenset({CoroutineType, GeneratorType, AsyncGeneratorType})
_IN_WORDS = {
    CoroutineType: "a coroutine that nobody awaited",
    GeneratorType: "a generator that nobody iterates",
    AsyncGeneratorType: "an asynchronous generator that nobody iterates",
}


def refuse_undone(result: Any) -> None:
    """InvalidResult for a coroutine, a generator or anything else that has to be awaited.

    The message would be acknowledged although nothing was done for it. Before every
    acknowledgement of a result that is not None, so it has to be cheap.
    """
    kind = type(result)
    if kind not in _NOT_BEGUN and not hasattr(kind, "__await__"):
        return
    if isinstance(result, (CoroutineType, GeneratorType)):
        with contextlib.suppress(Exception):
            # It never runs: closed, it does not complain of that either.
            result.close()
    what = _IN_WORDS.get(kind, f"a {kind.__name__} that nobody awaited")
    raise InvalidResult(
        f"the handler returned {what}, so its work is not done: make the handler `async def` and"
        " await it there, or return a plain value"
    )


def refuse_generator_function(handler: Callable[..., Any]) -> None:
    """ConfigurationError for a handler whose body would never run."""
    for function in (handler, getattr(handler, "__call__", None)):  # noqa: B004 - what is called
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(
                "the handler is a generator function: calling it runs nothing of it; take the"
                " `yield` out, or put what yields into a function that the handler iterates"
            )
