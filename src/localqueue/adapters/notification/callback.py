"""Calls functions of this process when a message is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from localqueue.adapters.gate import Gate
from localqueue.checks import check_callables
from localqueue.message import QueueMessage

Listener = Callable[[QueueMessage[Any]], object]


@dataclass(frozen=True, slots=True, init=False)
class CallbackNotification:
    """Calls every listener, in order, in the thread that put the message.

    A listener that raises does not keep the others from being called; the first error then reaches
    the caller of ``put``, whose message is stored. After ``close`` a put is quiet again.
    """

    listeners: tuple[Listener, ...]
    _gate: Gate = field(repr=False, compare=False)
    notifies: ClassVar[bool] = True
    notifies_on_put: ClassVar[bool] = True
    scope: ClassVar[str] = "in-process"

    def __init__(self, listeners: Listener | Iterable[Listener]) -> None:
        several = (listeners,) if callable(listeners) else listeners
        object.__setattr__(self, "listeners", check_callables("listeners", several))
        object.__setattr__(self, "_gate", Gate())

    @property
    def listener_count(self) -> int:
        return len(self.listeners)

    @property
    def closed(self) -> bool:
        return self._gate.closed

    def notify(self, message: QueueMessage[Any]) -> None:
        if not self._gate.enter():
            return
        first: BaseException | None = None
        try:
            for listener in self.listeners:
                try:
                    listener(message)
                except Exception as error:
                    first = first or error
        finally:
            self._gate.leave()
        if first is not None:
            raise first

    def close(self, timeout: float | None = None) -> bool:
        """Call nobody any more, and wait for listeners that are running; False when too long."""
        return self._gate.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def as_dict(self) -> dict[str, Any]:
        return {
            "type": "callback",
            "scope": self.scope,
            "notifies": self.notifies,
            "notifies_on_put": self.notifies_on_put,
            "listener_count": self.listener_count,
        }
