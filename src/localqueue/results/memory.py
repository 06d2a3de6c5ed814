"""Results in memory."""

from __future__ import annotations

from localqueue.results.records import ResultRecords
from localqueue.stores.record_memory import RecordMemory


class MemoryResultStore(RecordMemory, ResultRecords):
    """Results live as long as this object: for tests, and for work that a restart forgets.

    They are checked and copied as in a file.
    """
