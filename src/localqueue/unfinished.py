"""Messages that ``get()`` handed out and nobody has settled, for ``task_done`` and ``join``."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from localqueue.message import QueueMessage


class Unfinished:
    """Remembers messages in the order they were got, and which thread got each."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages: dict[str, tuple[int, QueueMessage[Any]]] = {}

    def add(self, message: QueueMessage[Any]) -> None:
        with self._changed:
            # A redelivery takes its place at the end.
            self._messages.pop(message.id, None)
            self._messages[message.id] = (threading.get_ident(), message)

    def take(self) -> QueueMessage[Any] | None:
        """The oldest of this thread, else the oldest of all; no longer remembered."""
        with self._changed:
            me = threading.get_ident()
            own = (key for key, (thread, _) in self._messages.items() if thread == me)
            key = next(own, None) or next(iter(self._messages), None)
            if key is None:
                return None
            _, message = self._messages.pop(key)
            self._changed.notify_all()
            return message

    def discard(self, message_ids: Iterable[str]) -> None:
        if not self._messages:
            return
        with self._changed:
            for message_id in message_ids:
                self._messages.pop(message_id, None)
            self._changed.notify_all()

    def clear(self) -> None:
        with self._changed:
            self._messages.clear()
            self._changed.notify_all()

    def wait_until_empty(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._messages)
