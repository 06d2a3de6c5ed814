"""Attempt records in a SQLite file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from localqueue.errors import AttemptStoreLockedError
from localqueue.retry.record_store import RecordAttemptStore
from localqueue.stores.record_file import RecordFile
from localqueue.stores.sqlite.store import SQLiteQueueStore


class SQLiteAttemptStore(RecordFile, RecordAttemptStore):
    """Records in one file, shared by the threads and processes of one host.

    The file is opened, and made if there is none, with the first call. ``timeout`` is how long a
    call waits for other writers before it raises AttemptStoreLockedError.
    """

    _locked = AttemptStoreLockedError

    def __init__(
        self,
        path: str | Path,
        timeout: float = 15.0,
        *,
        durability: Literal["full", "relaxed"] = "full",
    ) -> None:
        super().__init__(SQLiteQueueStore(path, timeout=timeout, durability=durability))
