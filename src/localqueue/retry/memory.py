"""Attempt records in memory."""

from __future__ import annotations

import threading
from dataclasses import replace

from localqueue.checks import check_key, check_seconds
from localqueue.retry.record import RetryRecord


class MemoryAttemptStore:
    """Records live as long as this object: for tests, and for work that a restart forgets."""

    reads_instantly = True

    def __init__(self) -> None:
        self._records: dict[str, RetryRecord] = {}
        self._lock = threading.Lock()

    def load(self, key: str) -> RetryRecord | None:
        with self._lock:
            found = self._records.get(key)
            return None if found is None else replace(found)

    def save(self, key: str, record: RetryRecord) -> None:
        check_key("retry key", key)
        with self._lock:
            self._records[key] = replace(record)

    def save_if(
        self, key: str, record: RetryRecord | None, *, expected: RetryRecord | None
    ) -> bool:
        """Save, or delete for None, if the stored record is the expected one; else False."""
        check_key("retry key", key)
        with self._lock:
            if self._records.get(key) != expected:
                return False
            if record is None:
                self._records.pop(key, None)
            else:
                self._records[key] = replace(record)
            return True

    def delete(self, key: str) -> None:
        with self._lock:
            self._records.pop(key, None)

    def prune_exhausted(self, *, older_than: float, now: float) -> int:
        """Forget exhausted records whose first attempt is at least that old; how many."""
        with self._lock:
            old = self._old(older_than, now)
            for key in old:
                del self._records[key]
            return len(old)

    def count_exhausted_older_than(self, *, older_than: float, now: float) -> int:
        """How many ``prune_exhausted`` would forget."""
        with self._lock:
            return len(self._old(older_than, now))

    def close(self) -> None:
        """Nothing to give up: for those who close whatever store they have."""

    def _old(self, older_than: float, now: float) -> list[str]:
        latest = now - check_seconds("older_than", older_than)
        return [
            key
            for key, record in self._records.items()
            if record.exhausted and record.first_attempt_at <= latest
        ]
