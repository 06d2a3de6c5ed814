"""Whether a put wakes somebody. What does is an adapter: ``localqueue.adapters.notification``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from localqueue.message import QueueMessage


class NotificationPolicy(Protocol):
    """Tells listeners that a message is stored. A notification is a hint: losing one loses no data.

    An exception reaches the caller of ``put`` and prevents dispatch; the message stays stored.
    """

    @property
    def notifies_on_put(self) -> bool: ...

    def notify(self, message: QueueMessage[Any]) -> None:
        """Called after the message is durable, before any dispatch."""

    def as_dict(self) -> dict[str, Any]: ...


@runtime_checkable
class WaitableNotification(Protocol):
    """A notification that a thread can wait for."""

    def wait(self, timeout: float | None = None) -> bool:
        """Block until notified: True. False when the time is over or it was closed."""

    def clear(self) -> None:
        """Forget what was notified, so that the next wait blocks again."""


@runtime_checkable
class AwaitableNotification(Protocol):
    """A notification that a coroutine can wait for."""

    async def wait_async(self, timeout: float | None = None) -> bool:
        """Wait until notified: True. False when the time is over or it was closed."""

    def clear(self) -> None:
        """Forget what was notified, so that the next wait blocks again."""


@dataclass(frozen=True, slots=True)
class NoNotification:
    """A put stores the message and stays quiet."""

    notifies: ClassVar[bool] = False
    notifies_on_put: ClassVar[bool] = False
    listener_count: ClassVar[int] = 0

    def notify(self, message: QueueMessage[Any]) -> None:
        """Do nothing."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "notifies": self.notifies,
            "notifies_on_put": self.notifies_on_put,
            "listener_count": self.listener_count,
        }


NO_NOTIFICATION = NoNotification()
