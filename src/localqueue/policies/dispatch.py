"""Whether a put runs handlers. What does is an adapter: ``localqueue.adapters.dispatch``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from localqueue.message import QueueMessage


class DispatchPolicy(Protocol):
    """Runs handlers for messages that are already stored.

    An exception reaches the caller of ``put``; the message stays stored. A dispatcher whose
    handlers lease and settle like workers has a true attribute ``runs_under_lease``.
    """

    @property
    def dispatches_on_put(self) -> bool: ...

    def dispatch(self, message: QueueMessage[Any]) -> None:
        """Called after the message is durable and after the notification."""

    def as_dict(self) -> dict[str, Any]: ...


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
