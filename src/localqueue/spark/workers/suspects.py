"""Messages whose job died: which of them did it is found out in ever smaller batches."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from localqueue.message import QueueMessage

MEMORY = 60.0
"""Seconds for which they are remembered: somebody else may have run them meanwhile."""
DOUBTS = 5
"""So often in a row a message may die alone without a word that it has begun."""


class Suspects:
    """How many messages may share a job with one that was in a job that died. From any thread.

    The root of their number each time: among a thousand it is found with the third death, and only
    a message that was alone is charged with it. One that was charged before is alone at once.
    """

    def __init__(self) -> None:
        self._companies: dict[str, int] = {}
        self._doubts: Counter[str] = Counter()
        self._until = 0.0
        self._lock = threading.Lock()

    def add(self, messages: Iterable[QueueMessage[Any]], of: int) -> None:
        """These were left in a job of so many when it died."""
        company = max(1, math.isqrt(of))
        with self._lock:
            self._until = time.monotonic() + MEMORY
            for message in messages:
                self._companies[message.id] = company

    def clear(self, messages: Iterable[QueueMessage[Any]]) -> None:
        """These have ended without harm, or alone."""
        if self._companies:
            with self._lock:
                for message in messages:
                    self._companies.pop(message.id, None)
                    self._doubts.pop(message.id, None)

    def is_doubtful(self, message: QueueMessage[Any]) -> bool:
        """It was alone in a job that died, and nobody has heard that it began: is it innocent?

        Not for ever: its task may be the one that could not say so.
        """
        with self._lock:
            self._doubts[message.id] += 1
            return self._doubts[message.id] < DOUBTS

    def company(self, message: QueueMessage[Any], usual: int) -> int:
        """How many may be in its job, itself included."""
        if message.crashes:
            return 1
        return min(usual, self._companies.get(message.id, usual)) if self._companies else usual

    def share(self, usual: int) -> int:
        """How many messages are worth leasing for one job."""
        if not self._companies:
            return usual
        with self._lock:
            if time.monotonic() > self._until:
                self._companies.clear()
                self._doubts.clear()
            return min([usual, *self._companies.values()])
