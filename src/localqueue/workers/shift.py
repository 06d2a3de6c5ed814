"""One run of a worker: what its foreman and its runners share."""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import Any, NamedTuple

from localqueue.commits.protocol import Commit
from localqueue.message import QueueMessage
from localqueue.stores.protocol import Settle
from localqueue.workers.bell import Bell
from localqueue.workers.context import Slot
from localqueue.workers.shutdown import Shutdown
from localqueue.workers.summary import Summary

STALLED = 0.1
"""Seconds: how long a message that is leased waits for a handler, where one can tell."""


class Ended(NamedTuple):
    """A delivery that is over, but for its settlement."""

    message: QueueMessage[Any]
    settle: Settle | None
    """None when it was settled before it began: at most once."""
    counts_as: str
    """A field of Summary."""
    commit: Commit | None = None
    """Who is told when the settlement is durable, or refused."""


class Shift:
    """Queues between threads that need no lock: each is a deque, and its ends are atomic."""

    def __init__(
        self, slots: list[Slot], shutdown: Shutdown, bell: Bell, *, until_empty: bool
    ) -> None:
        self.slots = slots
        self.shutdown = shutdown
        self.until_empty = until_empty
        self.bell = bell
        self.share = 1
        """How many messages a runner takes at a time; whoever runs them may change it."""
        self.patience = STALLED
        """When no runner took a message for so long, what was leased ahead is given back."""
        self.pending: deque[QueueMessage[Any]] = deque()
        """Leased, and no handler has begun."""
        self.acks: deque[QueueMessage[Any]] = deque()
        """Handled, with nothing to be written but the acknowledgement."""
        self.ended: deque[Ended] = deque()
        """Ended in any other way."""
        self.held: dict[int, QueueMessage[Any]] = {}
        """Everything that was leased and is not settled, by ``id()``; only the foreman changes it.

        What is not here any more was given back or lost: its result is dropped.
        """
        self.given_at = 0.0
        """When runners last got something; of ``time.monotonic()``."""
        self.leaves_leases = False
        """Whether something stays leased when the shift ends, for others to give back."""
        self.looked_at = 0.0
        """When the foreman was last seen at work; of ``time.monotonic()``."""
        self.left: list[Slot] = []
        """Slots whose handlers did not end when they had to, and that others have replaced; until
        they end after all. Only the foreman changes it."""
        self.undone: dict[int, QueueMessage[Any]] = {}
        """What was given up and whose commit is still undoing its part, by ``id()``."""
        self.counts: Counter[str] = Counter()
        self._measured = (0, 0.0)
        self._interrupted: dict[int, tuple[QueueMessage[Any]]] = {}
        """What was not done when the worker stopped; kept, so that an ``id()`` stays its own."""

    def leave(self, slot: Slot) -> Slot | None:
        """The slot that has taken the place of this one; None if its handler has ended after all.

        For the foreman.
        """
        successor = slot.leave()
        if successor is not None:
            self.slots[slot.number] = successor
            self.left.append(slot)
        return successor

    def forget_who_ended(self) -> None:
        """Of those that were left behind: each keeps its message. For the foreman."""
        # Another list: the heartbeat may be reading this one.
        self.left = [slot for slot in self.left if slot.is_stuck()]

    def is_behind(self) -> bool:
        """Whether more is leased than handlers are busy with."""
        return len(self.held) > sum([slot.message is not None for slot in self.slots])

    def free(self) -> int:
        """How many messages would find a runner that waits for them."""
        # In this order: a runner is idle no more before it takes one.
        pending = len(self.pending)
        return sum([slot.idle for slot in self.slots]) * self.share - pending

    def worked(self) -> tuple[int, float]:
        """Since the last time: how many handlers ended, and how long all runners worked."""
        now = time.monotonic()
        ended = sum([slot.count - (slot.message is not None) for slot in self.slots])
        worked = sum([slot.worked(now) for slot in self.slots])
        before, self._measured = self._measured, (ended, worked)
        return ended - before[0], worked - before[1]

    def is_first_to_interrupt(self, message: QueueMessage[Any]) -> bool:
        """Whether nobody asked this before: its runner and the foreman may give it back at once."""
        mine = (message,)
        return self._interrupted.setdefault(id(message), mine) is mine

    def summary(self) -> Summary:
        return Summary(**self.counts)
