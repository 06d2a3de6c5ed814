"""Calls handlers in the producer's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from localqueue.adapters.gate import Gate
from localqueue.checks import check_callables
from localqueue.errors import AdapterClosed
from localqueue.message import QueueMessage

Handler = Callable[[QueueMessage[Any]], object]


@dataclass(frozen=True, slots=True, init=False)
class CallbackDispatcher:
    """Calls every handler with the stored message, in order, in the thread that put it.

    Handlers run without a lease: one that finishes the work acknowledges the message. The first
    error ends the dispatch and reaches the caller of ``put``, whose message is stored.

    After ``close`` a dispatch raises instead of doing nothing, so that no caller takes a message
    for handled that was not.
    """

    handlers: tuple[Handler, ...]
    _gate: Gate = field(repr=False, compare=False)
    dispatches: ClassVar[bool] = True
    dispatches_on_put: ClassVar[bool] = True
    runs_under_lease: ClassVar[bool] = False

    def __init__(self, handlers: Iterable[Handler]) -> None:
        object.__setattr__(self, "handlers", check_callables("handlers", handlers))
        object.__setattr__(self, "_gate", Gate())

    @property
    def handler_count(self) -> int:
        return len(self.handlers)

    @property
    def closed(self) -> bool:
        return self._gate.closed

    def dispatch(self, message: QueueMessage[Any]) -> None:
        if not self._gate.enter():
            raise AdapterClosed(
                f"the dispatcher is closed; message {message.id} is stored and waits for a consumer"
            )
        try:
            for handler in self.handlers:
                handler(message)
        finally:
            self._gate.leave()

    def close(self, timeout: float | None = None) -> bool:
        """Start no handler any more, and wait for those that are running; False when too long."""
        return self._gate.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def as_dict(self) -> dict[str, Any]:
        return {
            "type": "callback",
            "dispatches": self.dispatches,
            "dispatches_on_put": self.dispatches_on_put,
            "handler_count": self.handler_count,
        }
