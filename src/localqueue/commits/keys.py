"""The names under which the work of a message is known in the stores."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from localqueue.checks import LONGEST_KEY
from localqueue.message import QueueMessage


@dataclass(frozen=True, slots=True)
class Keys:
    """The dedupe key of a message, scoped by its queue.

    A message that was put without a key has its id for one: its own repetitions are recognised.
    """

    queue: str
    key: str

    @classmethod
    def of(cls, message: QueueMessage[Any]) -> Keys:
        return cls(message.queue, message.dedupe_key or message.id)

    @classmethod
    def of_one(cls, message: QueueMessage[Any]) -> Keys:
        """Of this message alone: without a ledger its key may come again for other work."""
        if message.dedupe_key in (None, message.id):
            return cls.of(message)
        return cls(message.queue, f"{message.dedupe_key}:{message.id}")

    @property
    def scoped(self) -> str:
        """In the ledger, and for what is kept while the work is under way."""
        return _fitting(f"{self.queue}:{self.key}")

    @property
    def result(self) -> str:
        return _fitting(f"dedupe:{self.queue}:{self.key}")

    def envelope(self, kind: str) -> str:
        """Of an outbox, a phase or a saga."""
        return _fitting(f"{kind}:dedupe:{self.queue}:{self.key}")


def all_envelopes(kind: str, queue: str) -> str:
    """What the keys of all envelopes of a queue begin with; a queue's name has no colon."""
    return f"{kind}:dedupe:{queue}:"


def _fitting(text: str) -> str:
    """As it is, or with a digest for its end: a user's key may be as long as a key can be."""
    if len(text) <= LONGEST_KEY:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{text[: LONGEST_KEY - len(digest) - 1]}~{digest}"
