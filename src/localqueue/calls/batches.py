"""Batches: when one is large, and how a stream is cut into some."""

from __future__ import annotations

from typing import Any

from localqueue.put_options import PutMaker
from localqueue.stores.protocol import LARGEST_BATCH_BYTES, Put

LARGE = 256
"""From this many messages on an event loop would feel their encoding."""
LARGE_BYTES = 256 * 1024


class Chunks:
    """Cuts a stream into batches that fit one transaction each, with their values."""

    def __init__(self, make: PutMaker, most: int) -> None:
        self.done = 0
        """How many messages were put so far."""
        self._make = make
        self._most = most
        self._puts: list[Put] = []
        self._values: list[Any] = []
        self._size = 0

    def add(self, item: Any) -> tuple[list[Put], list[Any]] | None:
        """Take one more; the chunk before it, when it does not fit in there."""
        put = self._make(item)
        size = self._size + len(put.body)
        full = None
        if len(self._puts) >= self._most or (self._puts and size > LARGEST_BATCH_BYTES):
            full = self.rest()
            size = len(put.body)
        self._puts.append(put)
        self._values.append(item)
        self._size = size
        return full

    def rest(self) -> tuple[list[Put], list[Any]] | None:
        """What was taken since the last chunk."""
        chunk = (self._puts, self._values) if self._puts else None
        self._puts, self._values, self._size = [], [], 0
        return chunk
