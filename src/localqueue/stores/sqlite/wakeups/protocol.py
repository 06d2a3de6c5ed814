"""How a store wakes those who wait: what it is told, and what it may ask."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Literal, Protocol

from localqueue.errors import LocalQueueError
from localqueue.stores.protocol import Waiter

What = Literal["ready", "room"]
POLL = 0.05
"""How long a waiter sleeps before it looks by itself, where other processes cannot wake it."""
LONGEST_WAIT = 86_400.0


class Questions(Protocol):
    """What waiting asks the store; each question is at most one short read."""

    def numbers(self, queues: Sequence[str]) -> dict[str, int]:
        """The row numbers of those queues that have a row."""

    def is_left(self, what: What, number: int) -> bool:
        """Whether another waiter would find something there, now or within a second."""


class Wakeups(Protocol):
    """Those who wait in one process, and the way to those in others."""

    def tell(
        self, ready: AbstractSet[int], room: AbstractSet[int], *, waited_for: bool = True
    ) -> None:
        """Wake who waits for these queues, by row number; right after the commit, in any thread.

        It takes microseconds, never blocks and never raises. NEW_QUEUES stands for those queues
        that had no row before. ``waited_for``: whether anybody has ever waited for this file,
        where that is known.
        """

    def watch(self, queues: Sequence[str], what: What, ask: Questions) -> Waiter: ...

    def close(self) -> None:
        """Wake all waiters of this process, and give up what is open. Idempotent."""

    def before_fork(self) -> None:
        """Nothing is half open until ``after_fork``."""

    def after_fork(self, *, in_child: bool) -> None:
        """In the child, close what came along: it would be a reader that never reads."""


class Watched:
    """The queues of one waiter: those with a number, and those that have no row yet."""

    def __init__(self, queues: Sequence[str], ask: Questions) -> None:
        self.numbers: set[int] = set()
        self.missing: set[str] = set(queues)
        self._ask = ask
        self.look()

    def look(self) -> None:
        """Ask for the numbers of those that had none."""
        self.add(self.ask())

    def ask(self) -> dict[str, int]:
        """The numbers that are new. A store that cannot answer says so to the next probe."""
        if not self.missing:
            return {}
        try:
            return self._ask.numbers(sorted(self.missing))
        except LocalQueueError:
            return {}

    def add(self, found: dict[str, int]) -> None:
        self.missing -= found.keys()
        self.numbers.update(found.values())
