"""The ledger of keys whose work is done, so that it is not done again.

A ledger in a file of its own, in memory, or beside the messages: ``SQLiteIdempotencyStore`` on the
file of the queue, or ``IdempotencyRecords.of(queue.store)``. Any object with the methods of
``IdempotencyStore`` will do.
"""

from __future__ import annotations

from localqueue.errors import IdempotencyStoreLockedError
from localqueue.idempotency.memory import MemoryIdempotencyStore
from localqueue.idempotency.protocol import IdempotencyStore
from localqueue.idempotency.record import IdempotencyRecord
from localqueue.idempotency.records import IdempotencyRecords
from localqueue.idempotency.sqlite import SQLiteIdempotencyStore

__all__ = [
    "IdempotencyRecord",
    "IdempotencyRecords",
    "IdempotencyStore",
    "IdempotencyStoreLockedError",
    "MemoryIdempotencyStore",
    "SQLiteIdempotencyStore",
]
