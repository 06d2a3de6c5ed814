"""Attempt records in a SQLite file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from localqueue.errors import AttemptStoreLockedError, StoreBusy
from localqueue.retry.record import RetryRecord
from localqueue.retry.record_store import RecordAttemptStore
from localqueue.stores.sqlite.store import SQLiteQueueStore

R = TypeVar("R")


class SQLiteAttemptStore:
    """Records in one file, shared by the threads and processes of one host.

    The file is opened, and made if there is none, with the first call. ``timeout`` is how long a
    call waits for other writers before it raises AttemptStoreLockedError.
    """

    def __init__(
        self,
        path: str | Path,
        timeout: float = 15.0,
        *,
        durability: Literal["full", "relaxed"] = "full",
    ) -> None:
        self._store = SQLiteQueueStore(path, timeout=timeout, durability=durability)
        self._records = RecordAttemptStore(self._store)

    @property
    def path(self) -> Path:
        return self._store.path

    def load(self, key: str) -> RetryRecord | None:
        return self._ask(self._records.load, key)

    def save(self, key: str, record: RetryRecord) -> None:
        self._ask(self._records.save, key, record)

    def save_if(
        self, key: str, record: RetryRecord | None, *, expected: RetryRecord | None
    ) -> bool:
        """Save, or delete for None, if the stored record is the expected one; else False."""
        return self._ask(self._records.save_if, key, record, expected=expected)

    def delete(self, key: str) -> None:
        self._ask(self._records.delete, key)

    def prune_exhausted(self, *, older_than: float, now: float) -> int:
        """Forget exhausted records whose first attempt is at least that old; how many."""
        return self._ask(self._records.prune_exhausted, older_than=older_than, now=now)

    def count_exhausted_older_than(self, *, older_than: float, now: float) -> int:
        """How many ``prune_exhausted`` would forget."""
        return self._ask(self._records.count_exhausted_older_than, older_than=older_than, now=now)

    def close(self) -> None:
        """Give up the file; later calls raise StoreClosed. Idempotent."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SQLiteAttemptStore({str(self.path)!r})"

    def _ask(self, call: Callable[..., R], *args: Any, **options: Any) -> R:
        try:
            return call(*args, **options)
        except StoreBusy as busy:
            raise AttemptStoreLockedError(self.path) from busy
