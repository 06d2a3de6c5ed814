"""A ledger in a SQLite file."""

from __future__ import annotations

from pathlib import Path

from localqueue.errors import IdempotencyStoreLockedError
from localqueue.idempotency.records import IdempotencyRecords
from localqueue.stores.record_file import RecordFile
from localqueue.stores.sqlite.store import SQLiteQueueStore


class SQLiteIdempotencyStore(RecordFile, IdempotencyRecords):
    """A ledger in one file, shared by the threads and processes of one host.

    It may be the file of a queue: then a success is noted in the transaction of the
    acknowledgement. The file is opened, and made if there is none, with the first call. ``timeout``
    is how long a call waits for other writers before it raises IdempotencyStoreLockedError.
    """

    _locked = IdempotencyStoreLockedError

    def __init__(self, path: str | Path, timeout: float = 15.0) -> None:
        super().__init__(SQLiteQueueStore(path, timeout=timeout))
