"""A view of records with a memory of its own."""

from __future__ import annotations

from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.record_view import RecordView


class RecordMemory(RecordView):
    """Stands before the view among the bases: the records live as long as the view."""

    def __init__(self) -> None:
        super().__init__(MemoryQueueStore())

    def close(self) -> None:
        """Forget everything; later calls raise StoreClosed. Idempotent."""
        self.store.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
