"""A message whose handler returned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from localqueue.commits.keys import Keys
from localqueue.message import QueueMessage


@dataclass(frozen=True, slots=True)
class Work:
    """What is to become durable: the message, its result, and where the result is kept."""

    message: QueueMessage[Any]
    result: Any
    result_key: str | None
    """The key in a result store that the user attached; None without one."""

    @property
    def keys(self) -> Keys:
        return Keys.of(self.message)

    def envelope(self) -> dict[str, Any]:
        """What others are told of it."""
        return about(self.message) | {"result_key": self.result_key, "result": self.result}


def about(message: QueueMessage[Any]) -> dict[str, Any]:
    """Which message it is."""
    return {"queue": message.queue, "message_id": message.id, "dedupe_key": Keys.of(message).key}
