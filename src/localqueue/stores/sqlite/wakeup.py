"""Waking those who wait for a message or for room: threads at once, other processes by polling."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

POLL = 0.05
"""How long a waiter sleeps before it looks by itself: another process cannot wake it yet."""


class Wakeups:
    """Counts what happened per queue, so that a waiter sees what came between probe and sleep."""

    def __init__(self, *, poll: float | None) -> None:
        self._poll = poll
        self._condition = threading.Condition()
        self._told: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._closed = False

    def tell(self, ready: Iterable[int], room: Iterable[int]) -> None:
        keys = [("ready", queue) for queue in ready] + [("room", queue) for queue in room]
        if keys:
            with self._condition:
                for key in keys:
                    self._told[key] += 1
                self._condition.notify_all()

    def watch(self, queues: Iterable[int], what: Literal["ready", "room"]) -> QueueWaiter:
        keys: list[tuple[str, int]] = [(what, queue) for queue in queues]
        with self._condition:
            return QueueWaiter(self, keys, self.seen(keys))

    def wait(self, keys: list[tuple[str, int]], seen: int, timeout: float) -> bool:
        if self._poll is not None:
            timeout = min(timeout, self._poll)
        with self._condition:
            return self._condition.wait_for(
                lambda: self._closed or self.seen(keys) != seen, timeout
            )

    def after_fork_in_child(self) -> None:
        """Another thread of the parent may have held the lock, and no waiter came along."""
        self._condition = threading.Condition()

    def seen(self, keys: list[tuple[str, int]]) -> int:
        return sum(self._told[key] for key in keys)

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify_all()


class QueueWaiter:
    """Made before the probe."""

    def __init__(self, wakeups: Wakeups, keys: list[tuple[str, int]], seen: int) -> None:
        self._wakeups = wakeups
        self._keys = keys
        self._seen = seen

    def wait(self, timeout: float) -> bool:
        return self._wakeups.wait(self._keys, self._seen, timeout)

    def close(self) -> None:
        return
