"""Holding the leases of a stream for as long as its query may need them."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from localqueue.errors import StoreClosed, StoreError, StoreMoved
from localqueue.stores.masking import masked
from localqueue.stores.protocol import QueueStore

log = logging.getLogger("localqueue.spark")

_PER_TIMEOUT = 3
"""How often in the time of a lease: two may go wrong before one is lost."""
_SOONER = 10
"""After an error the next try comes this much sooner."""


class LeaseHeartbeat:
    """A daemon thread that extends all leases under a name, until ``close``.

    It belongs in the process that Spark keeps beside the driver for one query. Spark ends that
    process with the query, and when the driver dies its end of the line closes. Should the
    process live on all the same, it has another parent by then: nothing is extended any more.
    """

    def __init__(
        self, store: QueueStore, name: str, timeout: float, now: Callable[[], float]
    ) -> None:
        self._store = store
        self._name = name
        self._timeout = timeout
        self._now = now
        self._over = threading.Event()
        self._parent = os.getppid()
        self._thread = threading.Thread(
            target=self._run, name=f"localqueue leases of {name}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Extend no more; what it is doing is done by then. Idempotent."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        pause = self._timeout / _PER_TIMEOUT
        while not self._over.wait(pause):
            if os.getppid() != self._parent:
                return
            pause = self._timeout / _PER_TIMEOUT
            try:
                self._store.extend_of(self._name, timeout=self._timeout, now=self._now)
            except (StoreClosed, StoreMoved):
                return
            except StoreError as error:
                log.warning(
                    "the leases of %r were not extended: %s", self._name, masked(str(error))
                )
                pause /= _SOONER
