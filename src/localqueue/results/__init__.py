"""Where results of handlers are kept, so that a repetition can be answered with them.

A store in a file of its own, in memory, or beside the messages: ``SQLiteResultStore`` on the file
of the queue, or ``ResultRecords.of(queue.store)``. Any object with the three methods of
``ResultStore`` will do.
"""

from __future__ import annotations

from localqueue.errors import InvalidResult, ResultStoreLockedError
from localqueue.results.memory import MemoryResultStore
from localqueue.results.protocol import ResultStore
from localqueue.results.records import ResultRecords
from localqueue.results.sqlite import SQLiteResultStore

__all__ = [
    "InvalidResult",
    "MemoryResultStore",
    "ResultRecords",
    "ResultStore",
    "ResultStoreLockedError",
    "SQLiteResultStore",
]
