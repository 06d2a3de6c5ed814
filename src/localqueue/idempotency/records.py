"""A ledger in the records of a queue store: beside its messages, or in a file of its own.

What succeeded is dated by its success, so that what is old is found without reading what is not.
"""

from __future__ import annotations

from localqueue.idempotency.record import IdempotencyRecord, decode_record, encode_record
from localqueue.stores import dated_records
from localqueue.stores.dated_records import DatedRecords
from localqueue.stores.protocol import QueueStore

Found = dated_records.Found[IdempotencyRecord]


class IdempotencyRecords(DatedRecords[IdempotencyRecord]):
    """A ledger in any store of localqueue, for example that of a queue: ``of(queue.store)``."""

    _kind = "ledger"
    _index_kind = "ledger-done"
    _key_name = "idempotency key"

    @classmethod
    def of(cls, store: QueueStore) -> IdempotencyRecords:
        """A view on the records of a store; closing it leaves the store open."""
        return IdempotencyRecords(store)

    def prune_completed(self, *, older_than: float, now: float) -> int:
        """Forget keys that succeeded at least ``older_than`` seconds before ``now``; how many."""
        return self._prune(older_than, now)

    def count_completed_older_than(self, *, older_than: float, now: float) -> int:
        """How many ``prune_completed`` would forget."""
        return self._count_old(older_than, now)

    def _encode(self, record: IdempotencyRecord) -> bytes:
        return encode_record(record)

    def _decode(self, kept: bytes, key: str) -> IdempotencyRecord:
        return decode_record(kept, key)

    def _date(self, record: IdempotencyRecord) -> float | None:
        if not record.is_done:
            return None
        return record.first_seen_at if record.completed_at is None else record.completed_at
