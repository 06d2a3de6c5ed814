"""A ledger in a SQLite file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from localqueue.errors import IdempotencyStoreLockedError, StoreBusy
from localqueue.idempotency.records import IdempotencyRecords
from localqueue.stores.sqlite.store import SQLiteQueueStore


class SQLiteIdempotencyStore(IdempotencyRecords):
    """A ledger in one file, shared by the threads and processes of one host.

    It may be the file of a queue: then a success is noted in the transaction of the
    acknowledgement. The file is opened, and made if there is none, with the first call. ``timeout``
    is how long a call waits for other writers before it raises IdempotencyStoreLockedError.
    """

    def __init__(self, path: str | Path, timeout: float = 15.0) -> None:
        self._file = SQLiteQueueStore(path, timeout=timeout)
        super().__init__(self._file)

    @property
    def path(self) -> Path:
        return self._file.path

    def close(self) -> None:
        """Give up the file; later calls raise StoreClosed. Idempotent."""
        self._file.close()

    def __repr__(self) -> str:
        return f"SQLiteIdempotencyStore({str(self.path)!r})"

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except StoreBusy as busy:
            raise IdempotencyStoreLockedError(self.path) from busy
