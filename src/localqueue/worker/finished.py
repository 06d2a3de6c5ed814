"""Whether a handler has done its work when it returns."""

from __future__ import annotations

import inspect
from typing import TypeVar

from localqueue.errors import InvalidResult

R = TypeVar("R")


def finished(result: R) -> R:
    """The result of a handler, unless it is something that has yet to run: nobody would run it."""
    if result is None or not (
        inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)
    ):
        return result
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()
    raise InvalidResult(
        f"the handler returned an object of type {type(result).__name__}, which is work to be done"
        " and no result; coroutine functions are for persistent_async_worker"
    )
