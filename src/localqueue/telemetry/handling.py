"""What surrounds a handler that somebody listens to or traces."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from localqueue.message import QueueMessage

if TYPE_CHECKING:
    from localqueue.telemetry.emitter import Emitter
    from localqueue.telemetry.tracing import Trace


class Handling:
    """From the start of a handler to its end. Swallows nothing of what the handler raises."""

    __slots__ = ("_began", "_emitter", "_message", "_took", "_trace", "_worker")

    def __init__(
        self,
        emitter: Emitter,
        message: QueueMessage[Any],
        worker: str | None = None,
        took: float | None = None,
    ) -> None:
        """``took`` is for a handler that has ended already."""
        self._emitter = emitter
        self._message = message
        self._worker = worker
        self._trace: Trace | None = None
        self._began = 0.0
        self._took = took

    def __enter__(self) -> None:
        announce = self._emitter.announce
        if announce is not None:
            announce.handler_started(self._message, self._worker)
        self._trace = self._emitter.begun(
            lambda tracing: tracing.begin_handling(self._message, self._worker)
        )
        self._began = time.perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        took = time.perf_counter() - self._began if self._took is None else self._took
        self._emitter.ended(self._trace, None, error)
        announce = self._emitter.announce
        if announce is not None:
            announce.handler_ended(self._message, self._worker, took, error)
