"""Rows of a file as they were read: cells by name, and what is needed to make sense of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from localqueue.spark.read.arrow_columns import nothing, repeated, words


@dataclass(frozen=True, slots=True)
class Cells:
    """Some rows. A cell that is as usual in all of them was not read: then ``get`` is None."""

    rows: int
    arrays: Mapping[str, pa.Array]
    identity: tuple[tuple[int, str], ...]
    """The bits of public ids, by the seq from which on they are the file's."""
    queues: Mapping[int, str]
    strict: bool
    """Whether damage is an error, or null."""

    def __getitem__(self, name: str) -> pa.Array:
        return self.arrays[name]

    def get(self, name: str) -> pa.Array | None:
        return self.arrays.get(name)

    def of(self, name: str, kind: pa.DataType) -> pa.Array:
        """The cell as it is, null where it was not read."""
        array = self.arrays.get(name)
        return nothing(kind, self.rows) if array is None else array.cast(kind)

    def queue_names(self) -> pa.Array:
        """Their number was not read when all rows are of one queue."""
        numbers = self.arrays.get("queue")
        if numbers is None:
            (name,) = self.queues.values()
            return repeated(name, self.rows)
        return words(numbers, self.queues)

    def count(self, name: str) -> pa.Array:
        """A number that is usually 0."""
        array = self.arrays.get(name)
        return repeated(0, self.rows) if array is None else array.cast(pa.int32())
