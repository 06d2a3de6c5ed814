"""Holds the leases of the messages that decorated functions of this process are running.

One watch serves all of them that share a store: one heartbeat, one sign of life, one keeper. It
begins with the first call and ends some time after the last.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from localqueue.clock import StoreTime
from localqueue.message import Receipt
from localqueue.stores.protocol import LeaseAnswer, QueueStore
from localqueue.workers.heartbeat import Heartbeat, Held
from localqueue.workers.liveness import Liveness, bury_the_dead

log = logging.getLogger("localqueue.workers")

SLOTS = 256
"""Running messages that the sign of life names. What is beyond is not charged with a crash."""
BURY_EVERY = 0.25

Listener = Callable[[LeaseAnswer], object]


class Visit:
    """One user of a watch, who may leave while a thread is still on its way in."""

    def __init__(self, watch: LeaseWatch) -> None:
        self._watch = watch
        self._inside = False
        self._over = False
        self._lock = threading.Lock()

    def enter(self, *, start: bool = True) -> str | None:
        """See ``LeaseWatch.enter``. Who has left meanwhile is not inside afterwards."""
        name = self._watch.enter(start=start)
        if name is not None:
            with self._lock:
                self._inside, over = not self._over, self._over
            if over:
                self._watch.leave()
        return name

    def leave(self) -> None:
        """Once, whether or not it was entered."""
        with self._lock:
            self._over = True
            inside, self._inside = self._inside, False
        if inside:
            self._watch.leave()


class HeldLease:
    """One lease that is extended until ``let_go``."""

    def __init__(self, watch: LeaseWatch, receipt: Receipt, slot: int | None) -> None:
        self._watch = watch
        self._receipt = receipt
        self._slot = slot

    def let_go(self) -> None:
        """The handler has ended: extend no more, and charge nothing to the message. Idempotent."""
        self._watch._let_go(self._receipt, self._slot)
        self._slot = None


class LeaseWatch:
    """Use ``watch_over``. Several threads and tasks at a time; ``enter`` and ``bury`` may block."""

    def __init__(self, store: QueueStore, when: StoreTime, lease_timeout: float) -> None:
        self._store = store
        self._when = when
        self._lease_timeout = lease_timeout
        self._users = 0
        self._used_at = 0.0
        self._listeners: dict[Receipt, Listener] = {}
        self._free = list(range(SLOTS))
        self._liveness: Liveness | None = None
        self._heartbeat: Heartbeat | None = None
        self._lock = threading.Lock()
        self._buried_at = 0.0

    def enter(self, *, start: bool = True) -> str | None:
        """Somebody wants to lease: the liveness name to do it under. ``leave`` follows.

        May block while it starts the heartbeat; with ``start=False`` the answer is None instead.
        """
        with self._lock:
            if self._liveness is None:
                if not start:
                    return None
                self._start()
            assert self._liveness is not None
            self._users += 1
            return self._liveness.name

    def leave(self) -> None:
        """Nothing is leased any more by whoever entered."""
        with self._lock:
            self._users -= 1
            self._used_at = time.monotonic()
            if not self._users and self._heartbeat is not None and not self._heartbeat.is_beating:
                # The store was closed: nobody else would end the keeper.
                self._stop()

    @contextmanager
    def holding(self, receipt: Receipt, listener: Listener) -> Iterator[HeldLease]:
        """Extend this lease until the end or ``let_go``; the listener is told each answer."""
        with self._lock:
            slot = self._free.pop() if self._free else None
            self._listeners[receipt] = listener
            if slot is not None and self._liveness is not None:
                self._liveness.begin(slot, receipt.id)
        held = HeldLease(self, receipt, slot)
        try:
            yield held
        finally:
            held.let_go()

    def is_time_to_bury(self) -> bool:
        return time.monotonic() - self._buried_at >= BURY_EVERY

    def bury(self) -> None:
        """Give back what killed workers of this host had leased."""
        self._buried_at = time.monotonic()
        bury_the_dead(self._store, self._store.run_folder, self._when.now)

    @property
    def is_running(self) -> bool:
        return self._liveness is not None

    def retire(self) -> None:
        """Stop, unless somebody uses it."""
        with self._lock:
            if not self._users:
                self._stop()

    def _start(self) -> None:
        self._liveness = Liveness(self._store.run_folder, slots=SLOTS)
        self._heartbeat = Heartbeat(
            self._store,
            self._when,
            self._liveness,
            self._lease_timeout,
            held=self._held,
            on_answer=self._answered,
        )
        _running.add(self)
        self._heartbeat.start()

    def _stop(self) -> None:
        heartbeat, self._heartbeat = self._heartbeat, None
        liveness, self._liveness = self._liveness, None
        if heartbeat is not None:
            heartbeat.stop()
        if liveness is not None:
            liveness.close()
        _running.discard(self)

    def _let_go(self, receipt: Receipt, slot: int | None) -> None:
        with self._lock:
            self._listeners.pop(receipt, None)
            if slot is not None:
                if self._liveness is not None:
                    self._liveness.end(slot)
                self._free.append(slot)

    def _held(self) -> Held:
        """In the heartbeat's thread, at every beat."""
        # Not waited for: whoever retires the watch holds the lock and waits for this thread.
        if self._lock.acquire(blocking=False):
            try:
                unused = time.monotonic() - self._used_at
                if not self._users and unused > self._lease_timeout / 3:
                    self._stop()
                return Held(running=list(self._listeners))
            finally:
                self._lock.release()
        return Held(running=list(self._listeners))

    def _answered(self, receipt: Receipt, answer: LeaseAnswer) -> None:
        """In the heartbeat's thread. Whatever was settled meanwhile has no listener any more."""
        listener = self._listeners.get(receipt)
        if listener is None:
            return
        try:
            listener(answer)
        except Exception:
            log.exception("message %s of %r: its handler was not told", receipt.id, receipt.queue)


_watches: weakref.WeakValueDictionary[tuple[int, float], LeaseWatch] = weakref.WeakValueDictionary()
_running: set[LeaseWatch] = set()
"""Kept until they have stopped; one that nobody uses and that does not run is forgotten."""
_lock = threading.Lock()


def watch_over(store: QueueStore, when: StoreTime, lease_timeout: float) -> LeaseWatch:
    """The watch of this process for the leases of a store."""
    # A watch keeps its store alive, so that the number stays its own for as long as it is here.
    key = (id(store), lease_timeout)
    with _lock:
        found = _watches.get(key)
        if found is None:
            found = _watches[key] = LeaseWatch(store, when, lease_timeout)
        return found


def retire_watches() -> None:
    """End every watch that nobody uses, at once: threads, keepers, signs of life."""
    for watch in list(_running):
        watch.retire()


def _after_fork_in_child() -> None:
    # Threads and signs of life stay with the parent.
    global _lock
    _lock = threading.Lock()
    _watches.clear()
    _running.clear()


atexit.register(retire_watches)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
