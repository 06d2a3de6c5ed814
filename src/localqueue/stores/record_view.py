"""A store's records, seen as something else: results, a ledger, attempts."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Self

from localqueue.stores.protocol import QueueStore

ANY_TIME = 0.0
"""For records without an end of life of their own: the store need not know how late it is."""


class RecordView:
    """What every such view has: a store, and an end that leaves the store open."""

    def __init__(self, store: QueueStore) -> None:
        self.store = store

    def close(self) -> None:
        """Leave the store to whoever opened it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _asking(self) -> AbstractContextManager[object]:
        """Held around every call of the store, for those whose errors have names of their own."""
        return contextlib.nullcontext()
