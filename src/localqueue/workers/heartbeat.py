"""Heartbeats: a worker's leases are held while its handlers run, and lost ones are reported."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

from localqueue.clock import StoreTime
from localqueue.errors import StoreClosed, UnsupportedByStore
from localqueue.message import Receipt
from localqueue.stores.protocol import PREFETCHED, LeaseAnswer, QueueStore
from localqueue.workers.keeper_process import make_keeper
from localqueue.workers.liveness import Liveness

log = logging.getLogger(__name__)

AT_ONCE = 1000
"""Leases that are extended in one transaction."""
LOOK_EVERY = 0.5
"""How often ``look`` is called."""
LONGEST_STOP = 2.0
"""How long a beat is waited for that is stuck in the store."""


class Held(NamedTuple):
    """The leases of a worker: of handlers that have begun, and of those that have not."""

    running: Sequence[Receipt] = ()
    prefetched: Sequence[Receipt] = ()


class Heartbeat:
    """Extends what ``held`` names every third of ``lease_timeout``, in a thread of its own.

    ``on_answer`` is told each answer, in that thread. A lease that was settled between ``held`` and
    the extension is answered LOST as well: whoever listens knows what still runs. When no thread of
    the process comes to run, because a handler holds the GIL, a keeper does the same from outside;
    a process that was stopped loses its leases.

    ``lease_timeout`` is the shortest of all leases; ``timeout_of`` says how long each is to be held
    where they differ. ``look`` is called between the beats, in the same thread.
    """

    def __init__(
        self,
        store: QueueStore,
        when: StoreTime,
        liveness: Liveness,
        lease_timeout: float,
        *,
        held: Callable[[], Held],
        on_answer: Callable[[Receipt, LeaseAnswer], object] | None = None,
        timeout_of: Callable[[Receipt], float] | None = None,
        look: Callable[[], object] | None = None,
        keeper: bool = True,
    ) -> None:
        self._store = store
        self._when = when
        self._liveness = liveness
        self._timeout = lease_timeout
        self._held = held
        self._on_answer = on_answer
        self._timeout_of = timeout_of
        self._look = look
        self._stopped = threading.Event()
        self._keeper = make_keeper(store, when, liveness, lease_timeout) if keeper else None
        self._thread = threading.Thread(target=self._run, name="localqueue-heartbeat", daemon=True)

    def start(self) -> None:
        self._liveness.beat()
        if self._keeper is not None:
            self._keeper.keep_going()
        self._thread.start()

    def stop(self) -> None:
        """Extend nothing any more. Idempotent."""
        self._stopped.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(LONGEST_STOP)
        if self._keeper is not None:
            self._keeper.stop()

    @property
    def is_beating(self) -> bool:
        """False before it starts and after it ended, by ``stop`` or because the store is closed."""
        return self._thread.is_alive()

    def beat(self) -> None:
        """Extend everything now; what the store raises is raised."""
        held = self._held()
        self._extend(held.running, None)
        self._extend(held.prefetched, PREFETCHED)
        self._liveness.beat()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _extend(self, receipts: Sequence[Receipt], note: str | None) -> None:
        for timeout, alike in self._by_timeout(receipts).items():
            for at in range(0, len(alike), AT_ONCE):
                some = alike[at : at + AT_ONCE]
                answers = self._store.extend(some, timeout=timeout, note=note, now=self._when.now)
                for receipt, answer in zip(some, answers, strict=True):
                    self._tell(receipt, answer)

    def _by_timeout(self, receipts: Sequence[Receipt]) -> dict[float, Sequence[Receipt]]:
        """A beat makes no lease shorter than its queue's leases are."""
        if self._timeout_of is None:
            return {self._timeout: receipts}
        alike: dict[float, list[Receipt]] = {}
        for receipt in receipts:
            alike.setdefault(self._timeout_of(receipt), []).append(receipt)
        return dict(alike)

    def _tell(self, receipt: Receipt, answer: LeaseAnswer) -> None:
        try:
            if self._on_answer is not None:
                self._on_answer(receipt, answer)
        except Exception:
            # Whoever listens must not cost the others their leases.
            log.exception("the answer to an extension could not be handled")

    def _run(self) -> None:
        usual = pause = self._timeout / 3
        while not self._rests(pause):
            pause = usual
            try:
                self.beat()
            except (UnsupportedByStore, StoreClosed):
                # It cannot, or nobody needs it any more: leases end by expiry.
                return
            except Exception:
                log.exception("leases could not be extended; the next try comes sooner")
                pause = usual / 4
            if self._keeper is not None and not self._stopped.is_set():
                self._keeper.keep_going()

    def _rests(self, seconds: float) -> bool:
        """Until the next beat is due; True when there will be none."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if self._look is None:
                return self._stopped.wait(left)
            if self._stopped.wait(min(left, LOOK_EVERY)):
                return True
            try:
                self._look()
            except Exception:
                # It must not cost anybody a lease.
                log.exception("the look between two heartbeats failed")
        return self._stopped.is_set()
