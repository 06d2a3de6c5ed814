"""Attempt records as records of a queue store: beside the messages, or in a file of their own.

An exhausted record has an index record whose key begins with the time of the first attempt, so that
what is old is found without reading what is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from localqueue.checks import check_key, check_seconds
from localqueue.clock import SYSTEM_CLOCK, Clock, StoreTime
from localqueue.errors import RecordConflict
from localqueue.retry.record import RetryRecord, decode_record, encode_record
from localqueue.stores.protocol import QueueStore
from localqueue.stores.records import Record, RecordChange

KIND = "attempt"
INDEX = "attempt-exhausted"
SLICE = 500


class RecordAttemptStore:
    """Attempt records in any store of localqueue, for example that of a queue."""

    def __init__(self, store: QueueStore, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self.store = store
        self._clock = clock
        self._time: StoreTime | None = None

    def load(self, key: str) -> RetryRecord | None:
        found = self._find(check_key("retry key", key))
        return None if found is None else decode_record(found.value)

    def save(self, key: str, record: RetryRecord) -> None:
        check_key("retry key", key)
        while not self._change(key, self._find(key), record):
            pass  # somebody saved in between; this save is the later one

    def save_if(
        self, key: str, record: RetryRecord | None, *, expected: RetryRecord | None
    ) -> bool:
        """Save, or delete for None, if the stored record is the expected one; else False."""
        present = self._find(check_key("retry key", key))
        if (None if present is None else decode_record(present.value)) != expected:
            return False
        return self._change(key, present, record)

    def delete(self, key: str) -> None:
        check_key("retry key", key)
        while (present := self._find(key)) is not None and not self._change(key, present, None):
            pass

    def prune_exhausted(self, *, older_than: float, now: float) -> int:
        """Forget exhausted records whose first attempt is at least that old; how many."""
        pruned = 0
        for index in self._old(older_than, now):
            key = index.value.decode()
            present = self._find(key)
            if present is not None and _index_key(key, decode_record(present.value)) == index.key:
                pruned += self._change(key, present, None)
        return pruned

    def count_exhausted_older_than(self, *, older_than: float, now: float) -> int:
        """How many ``prune_exhausted`` would forget."""
        return sum(1 for _ in self._old(older_than, now))

    def _find(self, key: str) -> Record | None:
        return self.store.load_record(KIND, key, now=self._when().now)

    def _change(self, key: str, present: Record | None, record: RetryRecord | None) -> bool:
        """Replace what was found by ``record``, its index too; False if it changed meanwhile."""
        value = None if record is None else encode_record(record)
        changes = [RecordChange(KIND, key, value, 0 if present is None else present.version)]
        before = None if present is None else _index_key(key, decode_record(present.value))
        after = None if record is None else _index_key(key, record)
        if before is not None and before != after:
            changes.append(RecordChange(INDEX, before, None))
        if after is not None and before != after:
            changes.append(RecordChange(INDEX, after, key.encode()))
        try:
            self.store.change_records(changes, now=self._when().now)
        except RecordConflict:
            return False
        return True

    def _old(self, older_than: float, now: float) -> Iterator[Record]:
        latest = now - check_seconds("older_than", older_than)
        after = ""
        while True:
            found = self.store.scan_records(INDEX, after=after, limit=SLICE, now=self._when().now)
            for index in found:
                if float(index.key.partition(":")[0]) > latest:
                    return
                yield index
            if len(found) < SLICE:
                return
            after = found[-1].key

    def _when(self) -> StoreTime:
        if self._time is None:
            self._time = StoreTime(self._clock, self.store.open_clock(self._clock))
        return self._time


def _index_key(key: str, record: RetryRecord) -> str | None:
    """Sorts by the first attempt; a digest, because a key may be as long as a key can be."""
    if not record.exhausted:
        return None
    digest = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    return f"{max(0.0, record.first_attempt_at):020.6f}:{digest}"
