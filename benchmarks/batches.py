"""How much of SQLite's own speed is left for batches of 100?"""

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

BATCH = 100
TARGET = 0.3


def run(folder: Path, *, batches: int = 41, rounds: int = 15) -> Iterator[Report]:
    """``put_many(100)`` and ``get_messages(100)`` + ``ack_many`` against batch statements.

    A round has more events than lie between two folds of the journal, so each has its share.
    """
    rows = []
    for durability in DURABILITIES:
        puts, takes = compare(folder, durability, batches, rounds, _queue_side, _raw_side)
        messages = batches * BATCH
        rows += [
            row(f"put_many, {durability}", puts, messages, TARGET),
            row(f"get_messages + ack_many, {durability}", takes, messages, TARGET),
        ]
    yield Report(
        "batches",
        f"messages of 200 bytes in batches of {BATCH}, as a share of raw batch statements",
        "a message",
        "raw",
        rows,
        describe_machine(folder),
    )


def _queue_side(queue: PersistentQueue[Any]) -> Side:
    values = [job(number) for number in range(BATCH)]
    return Side(lambda: queue.put_many(values), lambda: queue.ack_many(queue.get_messages(BATCH)))


def _raw_side(table: RawTable) -> Side:
    values = [encoded(number) for number in range(BATCH)]
    return Side(lambda: table.put_many(values), lambda: table.take_many(BATCH))
