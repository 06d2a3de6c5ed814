"""What runs on an executor: the handler, for the messages of one job, one after the other."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localqueue.spark.python_process import keep_what_is_loaded
from localqueue.spark.workers.answers import DiedBefore, News, Ran, Unloadable, Unreadable
from localqueue.spark.workers.batch_parcel import BatchParcel
from localqueue.spark.workers.handler_round import Round
from localqueue.spark.workers.news import DeskAddress, Reporter
from localqueue.workers.parcel import pack, pack_error, unpack

if TYPE_CHECKING:
    from pyarrow import RecordBatch

PARCEL = "parcel"


@dataclass(frozen=True, slots=True)
class HandlerTask:
    """The same for every job of a worker; pickled, and called in Python workers of executors."""

    handler: bytes
    """By cloudpickle."""
    timeout: float | None
    desk: DeskAddress | None

    def over_rows(self, parcels: Iterable[bytes]) -> Iterator[bytes]:
        """For an RDD of one row."""
        # All of them are taken: Spark ends a Python worker that has left some.
        return (self.run(parcel) for parcel in parcels)

    def over_arrow(self, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        """For a data frame of one binary column."""
        import pyarrow as pa

        for batch in batches:
            answers = [self.run(parcel) for parcel in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(answers, pa.binary())], [PARCEL])

    def run(self, parcel: bytes) -> bytes:
        """Answers for the messages of a parcel; of none, whether the handler can be made here."""
        attempt = _attempt()
        if attempt:
            # Spark repeats a task whose process died, with all its messages. What has been done by
            # the first attempt is unknown here: the worker decides what runs again, and with whom.
            return pack(DiedBefore(attempt))
        try:
            handler = _loaded(self.handler)
        except BaseException as error:
            return pack(Unloadable(pack_error(error)))
        batch: BatchParcel = unpack(parcel)
        reporter = _reporter(self.desk)
        if batch.size <= 1 and reporter is not None:
            # Alone a message is charged when this process dies, from here on and not before. With
            # none it is to be seen whether the driver can be reached.
            reporter.send(News(batch.job, 0, [], [], 0, batch.size, []))
        if not batch.size:
            return pack(Ran([], []))
        try:
            messages = unpack(batch.messages)
        except Exception as error:
            return pack(Unreadable(pack_error(error)))
        return pack(Round(handler, batch.job, messages, self.timeout, reporter).run())


class Awaiting:
    """A coroutine function as a plain handler: one event loop for all messages of a process."""

    def __init__(self, handler: Callable[[Any], Awaitable[Any]]) -> None:
        self._handler = handler

    def __call__(self, value: Any) -> Any:
        return _loop().run(self._await(value), context=contextvars.copy_context())

    async def _await(self, value: Any) -> Any:
        return await self._handler(value)


def plain(handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The handler as one that returns when it is done."""
    is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - whether calling it makes a coroutine
    )
    return Awaiting(handler) if is_async else handler


def _attempt() -> int:
    """Which attempt of Spark's at this task it is; the first is 0."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.attemptNumber()


# Python workers live longer than a task: what was made for one job serves the next.
_handlers: dict[bytes, Callable[[Any], Any]] = {}
_reporters: dict[DeskAddress, Reporter] = {}
_loops: list[asyncio.Runner] = []


def _loaded(pickled: bytes) -> Callable[[Any], Any]:
    handler = _handlers.get(pickled)
    if handler is None:
        from pyspark import cloudpickle

        handler = cloudpickle.loads(pickled)
        _handlers.clear()
        _handlers[pickled] = handler
        keep_what_is_loaded()
    return handler


def _reporter(desk: DeskAddress | None) -> Reporter | None:
    if desk is None:
        return None
    if desk not in _reporters:
        while _reporters:
            _reporters.popitem()[1].close()
        _reporters[desk] = Reporter(desk)
    return _reporters[desk]


def _loop() -> asyncio.Runner:
    if not _loops:
        _loops.append(asyncio.Runner())
    return _loops[0]
