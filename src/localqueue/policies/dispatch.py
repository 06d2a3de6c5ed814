"""Whether a put runs handlers. What does is an adapter: ``localqueue.adapters.dispatch``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from localqueue.message import QueueMessage


class DispatchPolicy(Protocol):
    """Runs handlers for messages that are already stored.

    An exception reaches the caller of ``put``; the message stays stored. A dispatcher whose
    handlers lease and settle like workers has a true attribute ``runs_under_lease``, and the
    methods of LeasingDispatchPolicy.
    """

    @property
    def dispatches_on_put(self) -> bool: ...

    def dispatch(self, message: QueueMessage[Any]) -> None:
        """Called after the message is durable and after the notification."""

    def as_dict(self) -> dict[str, Any]: ...


@runtime_checkable
class LeasingDispatchPolicy(Protocol):
    """A dispatcher that works for the queues it is attached to, like a worker of each."""

    def attach(self, queue: Any) -> None:
        """Called when a queue is built with it. It may be attached to several."""

    def detach(self, queue: Any) -> None:
        """Called before the queue is closed: none of its messages is handled afterwards."""

    def work_off(self, queue: Any, limit: int | None) -> int:
        """Handle what is ready, at most ``limit`` messages, and wait for it; how many were."""


@dataclass(frozen=True, slots=True)
class NoDispatcher:
    """A put stores the message and calls nobody."""

    dispatches: ClassVar[bool] = False
    dispatches_on_put: ClassVar[bool] = False
    handler_count: ClassVar[int] = 0

    def dispatch(self, message: QueueMessage[Any]) -> None:
        """Do nothing."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "dispatches": self.dispatches,
            "dispatches_on_put": self.dispatches_on_put,
            "handler_count": self.handler_count,
        }


NO_DISPATCHER = NoDispatcher()
