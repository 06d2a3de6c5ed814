"""How much of SQLite's own speed is left for messages one by one?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.against_raw import DURABILITIES, Side, compare, row
from benchmarks.raw import RawTable
from benchmarks.report import Report, describe_machine
from benchmarks.values import encoded, job
from localqueue import PersistentQueue

AIMS = {"relaxed": (0.35, 0.4), "full": (0.8, 0.7)}
"""What the engine is to reach with put and with get; told beside the ratios, not yet demanded."""


def run(folder: Path, *, messages: int = 2000, rounds: int = 7) -> Iterator[Report]:
    """``put`` and ``get_message`` + ``ack`` against transactions of one row."""
    rows = []
    for durability in DURABILITIES:
        ours, raw = compare(
            folder,
            durability,
            rounds,
            lambda queue: _queue_side(queue, messages),
            lambda table: _raw_side(table, messages),
        )
        put, take = AIMS[durability]
        rows += [
            row(f"put, {durability} (aim {put})", ours.put, raw.put, messages),
            row(f"get_message + ack, {durability} (aim {take})", ours.take, raw.take, messages),
        ]
    yield Report(
        "single",
        "messages of 200 bytes one by one, as a share of raw one-row transactions",
        "a message",
        "raw",
        rows,
        describe_machine(folder),
    )


def _queue_side(queue: PersistentQueue[Any], messages: int) -> Side:
    value = job(1)

    def put() -> None:
        for _ in range(messages):
            queue.put(value)

    def take() -> None:
        for _ in range(messages):
            queue.ack(queue.get_message())

    return Side(put, take)


def _raw_side(table: RawTable, messages: int) -> Side:
    value = encoded(1)

    def put() -> None:
        for _ in range(messages):
            table.put(value)

    def take() -> None:
        for _ in range(messages):
            table.take()

    return Side(put, take)
