"""Attempt records as records of a queue store: beside the messages, or in a file of their own.

What is exhausted is dated by its first attempt, so that what is old is found without reading what
is not.
"""

from __future__ import annotations

from localqueue.clock import SYSTEM_CLOCK, Clock, Now, StoreTime
from localqueue.retry.record import RetryRecord, decode_record, encode_record
from localqueue.stores.dated_records import DatedRecords
from localqueue.stores.protocol import QueueStore


class RecordAttemptStore(DatedRecords[RetryRecord]):
    """Attempt records in any store of localqueue, for example that of a queue."""

    _kind = "attempt"
    _index_kind = "attempt-exhausted"
    _key_name = "retry key"

    def __init__(self, store: QueueStore, *, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(store)
        self._clock = clock
        self._time: StoreTime | None = None

    def save_if(
        self, key: str, record: RetryRecord | None, *, expected: RetryRecord | None
    ) -> bool:
        """Save, or delete for None, if the stored record is the expected one; else False."""
        present = self.find(key)
        return present.record == expected and self.replace(key, present, record)

    def prune_exhausted(self, *, older_than: float, now: float) -> int:
        """Forget exhausted records whose first attempt is at least that old; how many."""
        return self._prune(older_than, now)

    def count_exhausted_older_than(self, *, older_than: float, now: float) -> int:
        """How many ``prune_exhausted`` would forget."""
        return self._count_old(older_than, now)

    def _encode(self, record: RetryRecord) -> bytes:
        return encode_record(record)

    def _decode(self, kept: bytes, key: str) -> RetryRecord:
        return decode_record(kept)

    def _date(self, record: RetryRecord) -> float | None:
        return record.first_attempt_at if record.exhausted else None

    def _now(self) -> Now:
        if self._time is None:
            self._time = StoreTime(self._clock, self.store.open_clock(self._clock))
        return self._time.now
