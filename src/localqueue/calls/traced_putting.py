"""Putting inside of a trace: the messages carry where it continues."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from localqueue.calls.putting import Progress, Putting
from localqueue.message import QueueMessage
from localqueue.put_options import PutOptions
from localqueue.telemetry.emitter import Emitter

T = TypeVar("T")
R = TypeVar("R")


class TracedPutting:
    """The calls of Putting, each a trace of its own; what is put together shares one."""

    def __init__(self, putting: Putting, emitter: Emitter) -> None:
        self._putting = putting
        self._emitter = emitter

    async def put(
        self, item: T, block: bool, timeout: float | None, options: PutOptions
    ) -> QueueMessage[T]:
        return await self._traced(options, lambda o: self._putting.put(item, block, timeout, o))

    async def put_many(
        self, items: Iterable[T], block: bool, timeout: float | None, options: PutOptions
    ) -> list[QueueMessage[T]]:
        return await self._traced(
            options, lambda o: self._putting.put_many(items, block, timeout, o)
        )

    async def put_stream(
        self, items: Iterable[Any], chunk: int, options: PutOptions, on_progress: Progress
    ) -> int:
        return await self._traced(
            options, lambda o: self._putting.put_stream(items, chunk, o, on_progress)
        )

    async def put_async_stream(
        self, items: AsyncIterable[Any], chunk: int, options: PutOptions, on_progress: Progress
    ) -> int:
        return await self._traced(
            options, lambda o: self._putting.put_async_stream(items, chunk, o, on_progress)
        )

    async def _traced(
        self, options: PutOptions, put: Callable[[PutOptions], Coroutine[Any, Any, R]]
    ) -> R:
        emitter = self._emitter
        trace = emitter.begun(lambda tracing: tracing.begin_put(emitter.queue, options.headers))
        try:
            answer = await put(
                options if trace is None else options._replace(headers=trace.headers)
            )
        except BaseException as error:
            emitter.ended(trace, None, error)
            raise
        emitter.ended(trace, answer if isinstance(answer, QueueMessage) else None, None)
        return answer
