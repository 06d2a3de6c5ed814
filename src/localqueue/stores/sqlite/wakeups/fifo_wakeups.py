"""Waking across processes: a token in a FIFO for one who waits.

A token is written after the commit and read by one waiter, who is then the only one to look. It
may stand for more than one message, so whoever took one tells the next when it leaves something.
Losing a token costs a second at most: that often every waiter looks by itself.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeVar

from localqueue.stores.protocol import Waiter
from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.turnstile import tell_of_waiters
from localqueue.stores.sqlite.view import NEW_QUEUES
from localqueue.stores.sqlite.wakeups import fifo
from localqueue.stores.sqlite.wakeups.condition import ConditionWakeups
from localqueue.stores.sqlite.wakeups.fifo_waiter import FifoWaiter
from localqueue.stores.sqlite.wakeups.protocol import POLL, Questions, What
from localqueue.stores.sqlite.wakeups.read_end import CLOSED, Bell, End, NewsEnd, ReadEnd
from localqueue.stores.sqlite.wakeups.tellers import Tellers

Wake = Callable[[], None]
EndT = TypeVar("EndT", bound=End)


class FifoWakeups:
    """The FIFOs of one database in one process.

    Nothing is opened before somebody waits. Where a FIFO cannot be opened (a file system without
    them, no rights, no descriptors left), that waiter looks every 50 ms instead.
    """

    def __init__(self, companions: Companions) -> None:
        self._companions = companions
        self._tellers = Tellers(companions)
        self._polling = ConditionWakeups(poll=POLL)
        self._somebody_polls = False
        self._shared: dict[tuple[What, int], ReadEnd] = {}
        self._all_open: set[End] = set()
        self._abandoned: deque[End] = deque()
        self._bell: Bell | None = None
        self._tasks: set[Wake] = set()
        self._closed = False
        self._forking = False
        # Reentrant: a signal handler may wait, or fork.
        self._lock = threading.RLock()

    def tell(
        self, ready: AbstractSet[int], room: AbstractSet[int], *, waited_for: bool = True
    ) -> None:
        if waited_for:
            for number in ready:
                self._tellers.tell("ready", number)
            for number in room:
                self._tellers.tell("room", number)
        if self._somebody_polls:
            self._polling.tell(ready, room)

    def watch(self, queues: Sequence[str], what: What, ask: Questions) -> Waiter:
        if not self._closed:
            try:
                return FifoWaiter(self, queues, what, ask)
            except OSError:
                pass
        return self.poll(queues, what, ask)

    def poll(self, queues: Sequence[str], what: What, ask: Questions) -> Waiter:
        """A waiter that needs no FIFO."""
        self._somebody_polls = True
        return self._polling.watch(queues, what, ask)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._bell is not None:
                self._bell.ring()
                self._close_unused(self._bell)
            for wake in self._tasks:
                wake()
        self._polling.close()
        self._tellers.close()

    def __del__(self) -> None:
        for end in self._all_open:
            end.close()

    # --- for waiters --------------------------------------------------------------------------
    def open_bell(self) -> Bell:
        """Heard when the store is closed."""
        with self._lock:
            while self._abandoned:
                self.release(self._abandoned.popleft())
            if self._bell is None or self._bell.fd == CLOSED:
                self._bell = Bell()
                if self._closed:
                    self._bell.ring()
            return self._use(self._bell)

    def open(self, what: What, number: int) -> ReadEnd:
        """The end of a queue's FIFO; OSError where there can be none."""
        with self._lock:
            end = self._shared.get((what, number))
            if end is None or not end.is_in_place():
                # Before the first probe of who waits: whoever changes something later tells.
                tell_of_waiters(self._companions.lock)
                end = ReadEnd((what, number), self._path(what, number))
                self._shared[what, number] = end
            return self._use(end)

    def open_news(self, what: What) -> NewsEnd:
        with self._lock:
            tell_of_waiters(self._companions.lock)
            return self._use(NewsEnd(self._path(what, NEW_QUEUES)))

    def release(self, end: End) -> None:
        with self._lock:
            end.users -= 1
            if end is not self._bell or self._closed:
                self._close_unused(end)

    def abandon(self, end: End) -> None:
        """Released later: a waiter that nobody closed is collected at any moment."""
        self._abandoned.append(end)

    def add_task(self, wake: Wake) -> bool:
        """Call it when the store is closed; False when it is."""
        with self._lock:
            if not self._closed:
                self._tasks.add(wake)
            return not self._closed

    def remove_task(self, wake: Wake) -> None:
        with self._lock:
            self._tasks.discard(wake)

    def is_watched(self, what: What, number: int) -> bool:
        """Whether anybody waits there, in this process or another."""
        return (what, number) in self._shared or fifo.is_watched(self._path(what, number))

    def tell_next(self, what: What, number: int) -> None:
        self._tellers.tell(what, number)

    # --- forks --------------------------------------------------------------------------------
    def before_fork(self) -> None:
        self._polling.before_fork()
        self._tellers.lock.acquire()
        self._lock.acquire()
        self._forking = True

    def after_fork(self, *, in_child: bool) -> None:
        forking, self._forking = self._forking, False
        self._polling.after_fork(in_child=in_child)
        if in_child:
            self._tellers.after_fork_in_child()
            self._lock = threading.RLock()
            for end in self._all_open:
                end.close()
            self._all_open.clear()
            self._shared.clear()
            self._tasks.clear()
        elif forking:
            self._lock.release()
            self._tellers.lock.release()

    # --- how it is done -----------------------------------------------------------------------
    def _path(self, what: What, number: int) -> str:
        return self._companions.fifo(what, number)

    def _use(self, end: EndT) -> EndT:
        end.users += 1
        self._all_open.add(end)
        return end

    def _close_unused(self, end: End) -> None:
        if end.users <= 0:
            end.close()
            self._all_open.discard(end)
            if isinstance(end, ReadEnd) and self._shared.get(end.key) is end:
                del self._shared[end.key]
