"""What has begun on an event loop and must not be left halfway."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class ToTheEnd(Generic[R]):
    """Await a coroutine to its end: a cancellation is raised when it has ended, and not before.

    It stays a part of the task. A task of its own would be cancelled with all the others when the
    loop ends, and what it waits for in a thread would go on without it.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, R]) -> None:
        self._coroutine = coroutine
        self._cancelled: asyncio.CancelledError | None = None

    def __await__(self) -> Generator[Any, None, R]:
        try:
            answer = yield from self._driven()
        except GeneratorExit:
            raise
        except BaseException as error:
            if self._cancelled is not None:
                raise self._cancelled from error
            raise
        finally:
            # Nothing, unless whoever awaits this is closed itself.
            self._coroutine.close()
        if self._cancelled is not None:
            raise self._cancelled
        return answer

    def _driven(self) -> Generator[Any, None, R]:
        while True:
            try:
                awaited = self._coroutine.send(None)
            except StopIteration as end:
                answer: R = end.value
                return answer
            yield from self._waiting(awaited)

    def _waiting(self, awaited: asyncio.Future[Any] | None) -> Generator[Any, None, None]:
        """Until the coroutine can go on. The task does not see its future, or would cancel it."""
        if awaited is None:
            try:
                yield
            except asyncio.CancelledError as error:
                self._cancelled = error
            return
        while not awaited.done():
            done: asyncio.Future[None] = awaited.get_loop().create_future()
            awaited.add_done_callback(functools.partial(_tell, done))
            try:
                yield from done
            except asyncio.CancelledError as error:
                self._cancelled = error


def _tell(done: asyncio.Future[None], _: asyncio.Future[Any]) -> None:
    if not done.done():
        done.set_result(None)
