"""The seam for tracing: what surrounds a put and a handler, and travels in a message's headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from localqueue.message import QueueMessage


class Trace(Protocol):
    """A put or a handler that has begun."""

    @property
    def headers(self) -> Mapping[str, str] | None:
        """What a put stores as headers: the caller's own, and where the trace continues."""

    def end(self, message: QueueMessage[Any] | None, error: BaseException | None) -> None:
        """It is over, in the thread or task in which it began; ``message`` is what a put stored."""


class Tracing(Protocol):
    """Begins traces. What it raises is logged, and the queue goes on untraced."""

    def begin_put(self, queue: str, headers: Mapping[str, str] | None) -> Trace:
        """A call of put, put_many or put_stream begins."""

    def begin_handling(self, message: QueueMessage[Any], worker: str | None) -> Trace:
        """A handler begins, in the calling thread or task."""
