"""Dispatchers whose handlers run beside the producer, under leases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from localqueue.adapters.dispatch.background import Background, Handler
from localqueue.checks import check_count
from localqueue.message import QueueMessage
from localqueue.queue import PersistentQueue


@dataclass(frozen=True, slots=True, init=False)
class ThreadedDispatcher:
    """A put returns as soon as it is stored; a thread leases the message and calls the handlers.

    One message after the other, each with all handlers in order. The message is acknowledged when
    they return; when one raises, it is delivered again later, or becomes a dead letter in the end.
    ``options`` are those of ``Worker``: max_tries, backoff, timeout and others.
    """

    handlers: tuple[Handler, ...]
    _background: Background = field(repr=False, compare=False)
    type: ClassVar[str] = "threaded"
    dispatches: ClassVar[bool] = True
    dispatches_on_put: ClassVar[bool] = True
    runs_under_lease: ClassVar[bool] = True

    def __init__(self, handlers: Iterable[Handler], **options: Any) -> None:
        self._work_with(Background(handlers, 1, options))

    @property
    def handler_count(self) -> int:
        return len(self.handlers)

    @property
    def closed(self) -> bool:
        return self._background.closed

    def attach(self, queue: PersistentQueue[Any]) -> None:
        """Called when a queue is built with it."""
        self._background.attach(queue)

    def detach(self, queue: PersistentQueue[Any]) -> None:
        """Called before that queue is closed."""
        self._background.detach(queue)

    def dispatch(self, message: QueueMessage[Any]) -> None:
        """See that somebody works for the queue of this message."""
        self._background.dispatch(message)

    def work_off(self, queue: PersistentQueue[Any], limit: int | None) -> int:
        """Handle what is ready and wait for it; how many messages were handled."""
        return self._background.work_off(queue, limit)

    def close(self, timeout: float | None = None) -> bool:
        """Start no handler any more, and wait for those that are running; False when too long."""
        return self._background.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def as_dict(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "dispatches": self.dispatches,
            "dispatches_on_put": self.dispatches_on_put,
            "handler_count": self.handler_count,
        }

    def _work_with(self, background: Background) -> None:
        object.__setattr__(self, "handlers", background.handlers)
        object.__setattr__(self, "_background", background)


@dataclass(frozen=True, slots=True, init=False)
class WorkerPoolDispatcher(ThreadedDispatcher):
    """The same with several threads: up to ``workers`` messages are handled side by side."""

    workers: int
    type: ClassVar[str] = "worker-pool"

    def __init__(self, handlers: Iterable[Handler], workers: int = 4, **options: Any) -> None:
        object.__setattr__(self, "workers", check_count("workers", workers, least=1))
        self._work_with(Background(handlers, workers, options))

    def as_dict(self) -> dict[str, Any]:
        # Not super(): a dataclass with slots is made anew, and knows it no more.
        return ThreadedDispatcher.as_dict(self) | {"workers": self.workers}
