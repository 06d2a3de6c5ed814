"""A store in this process's memory: the same verbs, on a database that is never a file.

One set of statements serves both, so what a test sees with it is what a file does.
"""

from __future__ import annotations

from localqueue.stores.protocol import Atomicity, StoreCapabilities
from localqueue.stores.sqlite.memory_runner import MemoryRunner
from localqueue.stores.sqlite.store import SQLStore
from localqueue.stores.sqlite.wakeup import make_wakeups


class MemoryQueueStore(SQLStore):
    """Messages live as long as this object: for tests, and for work that may be lost."""

    capabilities = StoreCapabilities(
        ordered=True, wakes_waiters=True, transactional=Atomicity.STORE
    )

    def __init__(self) -> None:
        wakeups = make_wakeups(None)
        super().__init__(MemoryRunner(wakeups), wakeups)

    def __repr__(self) -> str:
        return "MemoryQueueStore()"
