"""How much of SQLite's own speed is left for messages one by one?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.against_raw import Side, compare, row
from benchmarks.durability import DURABILITIES
from benchmarks.raw import RawTable
from benchmarks.report import Report, describe_machine
from benchmarks.values import encoded, job
from localqueue import PersistentQueue

TARGETS = {"relaxed": (0.35, 0.4), "full": (0.8, 0.7)}
"""For put, and for get and ack."""


def run(folder: Path, *, messages: int = 1000, rounds: int = 11) -> Iterator[Report]:
    """``put`` and ``get_message`` + ``ack`` against transactions of one row."""
    rows = []
    for durability in DURABILITIES:
        puts, takes = compare(folder, durability, messages, rounds, _queue_side, _raw_side)
        put, take = TARGETS[durability]
        rows += [
            row(f"put, {durability}", puts, messages, put),
            row(f"get_message + ack, {durability}", takes, messages, take),
        ]
    yield Report(
        "single",
        "messages of 200 bytes one by one, as a share of raw one-row transactions",
        "a message",
        "raw",
        rows,
        describe_machine(folder),
    )


def _queue_side(queue: PersistentQueue[Any]) -> Side:
    value = job(1)
    return Side(lambda: queue.put(value), lambda: queue.ack(queue.get_message()))


def _raw_side(table: RawTable) -> Side:
    value = encoded(1)
    return Side(lambda: table.put(value), table.take)
