"""Batches of a query take turns with what must not happen during one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Ended(Exception):
    """A batch that came after the end; it has done nothing."""


class Turns:
    """One thing at a time: a batch, looking after the tables, or the end of the query."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._ended = threading.Event()

    @property
    def is_over(self) -> bool:
        return self._ended.is_set()

    @contextmanager
    def batch(self) -> Iterator[None]:
        """A batch is inside. Ended when there are no more batches."""
        with self._turn:
            if self.is_over:
                raise Ended
            yield

    @contextmanager
    def between_batches(self) -> Iterator[None]:
        """Inside there is no batch; one that comes waits."""
        with self._turn:
            yield

    def end(self) -> None:
        """No batch begins any more; returns when the last one is over."""
        self._ended.set()
        with self._turn:
            pass
