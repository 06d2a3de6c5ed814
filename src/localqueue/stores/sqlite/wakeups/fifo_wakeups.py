"""Waking across processes: a token in a FIFO for one who waits.

A token is written after the commit and read by one waiter, who is then the only one to look. It
may stand for more than one message, so whoever took one tells the next when it leaves something.
Losing a token costs a second at most: that often every waiter looks by itself.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from localqueue.stores.protocol import Waiter
from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.wakeups import fifo
from localqueue.stores.sqlite.wakeups.condition import ConditionWakeups
from localqueue.stores.sqlite.wakeups.fifo_waiter import FifoWaiter
from localqueue.stores.sqlite.wakeups.protocol import POLL, Questions, Watched, What
from localqueue.stores.sqlite.wakeups.read_end import ReadEnd
from localqueue.stores.sqlite.wakeups.tellers import Tellers


class FifoWakeups:
    """The FIFOs of one database in one process.

    Nothing is opened before somebody waits. Where a FIFO cannot be opened (a file system without
    them, no rights, no descriptors left), that waiter looks every 50 ms instead.
    """

    def __init__(self, companions: Companions) -> None:
        self._companions = companions
        self._tellers = Tellers(companions)
        self._polling = ConditionWakeups(poll=POLL)
        self._polled = False
        self._ends: dict[tuple[What, int], ReadEnd] = {}
        self._abandoned: deque[ReadEnd] = deque()
        self._tasks: set[Callable[[], None]] = set()
        self._bell: tuple[int, int] | None = None
        self._waiters = 0
        self._closed = False
        self._forking = False
        self._lock = threading.RLock()
        self.generation = 0
        """How many forks lie behind: a waiter of an older one has lost its ends."""

    def tell(self, ready: AbstractSet[int], room: AbstractSet[int]) -> None:
        for number in ready:
            self._tellers.tell("ready", number)
        for number in room:
            self._tellers.tell("room", number)
        if self._polled:
            self._polling.tell(ready, room)

    def watch(self, queues: Sequence[str], what: What, ask: Questions) -> Waiter:
        if not self._closed:
            try:
                return FifoWaiter(self, queues, what, ask)
            except OSError:
                self._polled = True
        return self._polling.watch(queues, what, ask)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._bell is not None:
                os.write(self._bell[1], fifo.TOKEN)
            for wake in self._tasks:
                wake()
            self._silence()
        self._polling.close()
        self._tellers.close()

    def before_fork(self) -> None:
        self._polling.before_fork()
        self._tellers.lock.acquire()
        self._lock.acquire()
        self._forking = True

    def after_fork(self, *, in_child: bool) -> None:
        forking, self._forking = self._forking, False
        self._polling.after_fork(in_child=in_child)
        if in_child:
            self._lock = threading.RLock()
            self._tellers.after_fork_in_child()
            self._forget_all()
        elif forking:
            self._lock.release()
            self._tellers.lock.release()
    ...
