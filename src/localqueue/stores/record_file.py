"""A view of records with a SQLite file of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from localqueue.errors import StoreBusy
from localqueue.stores.record_view import RecordView
from localqueue.stores.sqlite.store import SQLiteQueueStore


class RecordFile(RecordView):
    """Stands before the view among the bases: the view's store is the file.

    Where the file would raise StoreBusy, the error is ``_locked``, made of the path.
    """

    _locked: ClassVar[type[StoreBusy]]

    def __init__(self, file: SQLiteQueueStore) -> None:
        super().__init__(file)
        self._file = file

    @property
    def path(self) -> Path:
        return self._file.path

    def close(self) -> None:
        """Give up the file; later calls raise StoreClosed. Idempotent."""
        self._file.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except StoreBusy as busy:
            raise self._locked(self.path) from busy
