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

AIMS = {"relaxed": (0.35, 0.4), "full": (0.8, 0.7)}
"""What the engine is to reach with put and with get; told beside the ratios, not yet demanded."""


def run(folder: Path, *, messages: int = 1000, rounds: int = 11) -> Iterator[Report]:
    """``put`` and ``get_message`` + ``ack`` against transactions of one row."""
    rows = []
    for durability in DURABILITIES:
        puts, takes = compare(folder, durability, messages, rounds, _queue_side, _raw_side)
        put, take = AIMS[durability]
        rows += [
            row(f"put, {durability} (aim {put})", puts, messages),
            row(f"get_message + ack, {durability} (aim {take})", takes, messages),
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
