"""A ledger in memory."""

from __future__ import annotations

from localqueue.idempotency.records import IdempotencyRecords
from localqueue.stores.record_memory import RecordMemory


class MemoryIdempotencyStore(RecordMemory, IdempotencyRecords):
    """Records live as long as this object: for tests, and for work that a restart forgets.

    They are checked and copied as in a file.
    """
