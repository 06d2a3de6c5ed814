"""The same work in plain SQLite statements: what a queue on SQLite cannot be faster than."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.durability import Durability
from benchmarks.peers.contestant import Contestant, Entrant, Value
from benchmarks.raw import RawTable
from localqueue.codec import JSON_CODEC


class RawSQLite(Contestant):
    """Rows of bytes: beside the statements, the values are encoded and decoded."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        self._table = RawTable(folder / "raw.sqlite3", durability)

    def put(self, value: Value) -> None:
        self._table.put(JSON_CODEC.encode(value))

    def take(self, count: int) -> Sequence[Value]:
        return [JSON_CODEC.decode(self._table.take()) for _ in range(count)]

    def fill(self, values: Sequence[Value]) -> None:
        self._table.put_many([JSON_CODEC.encode(value) for value in values])

    def close(self) -> None:
        self._table.close()


ENTRANT = Entrant(
    "raw SQLite",
    "raw",
    RawSQLite,
    lacks="receipts, journal, counts, checks",
)
