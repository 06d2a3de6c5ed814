"""How much of SQLite's own speed is left for batches of 100?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.against_raw import DURABILITIES, Side, compare, row
from benchmarks.raw import RawTable
from benchmarks.report import Report, describe_machine
from benchmarks.values import encoded, job
from localqueue import PersistentQueue

BATCH = 100
TARGET = 0.3


def run(folder: Path, *, batches: int = 60, rounds: int = 7) -> Iterator[Report]:
    """``put_many(100)`` and ``get_messages(100)`` + ``ack_many`` against batch statements."""
    rows = []
    for durability in DURABILITIES:
        ours, raw = compare(
            folder,
            durability,
            rounds,
            lambda queue: _queue_side(queue, batches),
            lambda table: _raw_side(table, batches),
        )
        each = batches * BATCH
        rows += [
            row(f"put_many, {durability}", ours.put, raw.put, each, TARGET),
            row(f"get_messages + ack_many, {durability}", ours.take, raw.take, each, TARGET),
        ]
    yield Report(
        "batches",
        f"messages of 200 bytes in batches of {BATCH}, as a share of raw batch statements",
        "a message",
        "raw",
        rows,
        describe_machine(folder),
    )


def _queue_side(queue: PersistentQueue[Any], batches: int) -> Side:
    values = [job(number) for number in range(BATCH)]

    def put() -> None:
        for _ in range(batches):
            queue.put_many(values)

    def take() -> None:
        for _ in range(batches):
            queue.ack_many(queue.get_messages(BATCH))

    return Side(put, take)


def _raw_side(table: RawTable, batches: int) -> Side:
    values = [encoded(number) for number in range(BATCH)]

    def put() -> None:
        for _ in range(batches):
            table.put_many(values)

    def take() -> None:
        for _ in range(batches):
            table.take_many(BATCH)

    return Side(put, take)
