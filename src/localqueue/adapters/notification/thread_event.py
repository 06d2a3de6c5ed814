"""Wakes threads of this process when a message is stored."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from localqueue.checks import check_timeout
from localqueue.message import QueueMessage


class _Closing:
    """Whether it was closed. The lock keeps a late clear() from undoing the wake-up."""

    __slots__ = ("done", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.done = False


@dataclass(frozen=True, slots=True)
class InProcessNotification:
    """Sets a ``threading.Event`` for each put; threads ``wait`` for it and ``clear`` it.

    Clear first, then look into the queue, then wait: a put in between is not missed. After
    ``close`` notify does nothing, and every wait, running or later, returns False at once.
    """

    event: threading.Event = field(default_factory=threading.Event)
    _closing: _Closing = field(default_factory=_Closing, init=False, repr=False, compare=False)
    notifies: ClassVar[bool] = True
    notifies_on_put: ClassVar[bool] = True
    listener_count: ClassVar[int] = 1
    scope: ClassVar[str] = "in-process"

    @property
    def closed(self) -> bool:
        return self._closing.done

    def notify(self, message: QueueMessage[Any]) -> None:
        with self._closing.lock:
            if not self._closing.done:
                self.event.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until a put: True. False when the time is over or the notification was closed."""
        return self.event.wait(check_timeout(timeout)) and not self._closing.done

    def clear(self) -> None:
        with self._closing.lock:
            if not self._closing.done:
                self.event.clear()

    def close(self) -> None:
        """Wake whoever waits. Idempotent."""
        with self._closing.lock:
            self._closing.done = True
            self.event.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def as_dict(self) -> dict[str, Any]:
        return {
            "type": "thread-event",
            "scope": self.scope,
            "notifies": self.notifies,
            "notifies_on_put": self.notifies_on_put,
            "listener_count": self.listener_count,
        }
