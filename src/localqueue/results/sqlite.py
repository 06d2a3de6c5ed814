"""Results in a SQLite file."""

from __future__ import annotations

from pathlib import Path

from localqueue.errors import ResultStoreLockedError
from localqueue.results.records import ResultRecords
from localqueue.stores.record_file import RecordFile
from localqueue.stores.sqlite.store import SQLiteQueueStore


class SQLiteResultStore(RecordFile, ResultRecords):
    """Results in one file, shared by the threads and processes of one host.

    It may be the file of a queue: then a result is written in the transaction of the
    acknowledgement. The file is opened, and made if there is none, with the first call. ``timeout``
    is how long a call waits for other writers before it raises ResultStoreLockedError.
    """

    _locked = ResultStoreLockedError

    def __init__(self, path: str | Path, timeout: float = 15.0) -> None:
        super().__init__(SQLiteQueueStore(path, timeout=timeout))
