"""A ledger in memory."""

from __future__ import annotations

from localqueue.idempotency.records import IdempotencyRecords
from localqueue.stores.memory import MemoryQueueStore


class MemoryIdempotencyStore(IdempotencyRecords):
    """Records live as long as this object: for tests, and for work that a restart forgets.

    They are checked and copied as in a file.
    """

    def __init__(self) -> None:
        super().__init__(MemoryQueueStore())

    def close(self) -> None:
        """Forget everything; later calls raise StoreClosed. Idempotent."""
        self.store.close()

    def __repr__(self) -> str:
        return "MemoryIdempotencyStore()"
