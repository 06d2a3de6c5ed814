"""What does a worker gain that settles some messages and leases the next ones in one call?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Self

from benchmarks.durability import DURABILITIES, Durability
from benchmarks.report import Report, Row, describe_machine
from benchmarks.timing import seconds
from benchmarks.values import job
from localqueue import PersistentQueue
from localqueue.clock import SYSTEM_CLOCK, StoreTime
from localqueue.codec import JSON_CODEC
from localqueue.message import Receipt
from localqueue.outcome import Ack
from localqueue.stores.protocol import LeaseRequest, Settle, Settled
from localqueue.stores.sqlite.store import SQLiteQueueStore

NAME = "jobs"
PREFETCH = (20, 100)
TARGETS: dict[Durability, float] = {"relaxed": 5.0, "full": 10.0}


def run(folder: Path, *, messages: int = 1000, rounds: int = 11) -> Iterator[Report]:
    """``settle_and_lease`` of 20 and of 100 messages against ``get_message`` + ``ack``."""
    rows = []
    for durability in DURABILITIES:
        with _Worker(folder / f"{durability}.sqlite3", durability) as worker:
            rows += _compare(worker, durability, messages, rounds)
    yield Report(
        "settle",
        "settle_and_lease, as a multiple of get_message + ack one by one",
        "a message",
        "one by one",
        rows,
        describe_machine(folder),
    )


def _compare(worker: _Worker, durability: Durability, messages: int, rounds: int) -> list[Row]:
    alone: list[float] = []
    together: dict[int, list[float]] = {prefetch: [] for prefetch in PREFETCH}
    for _ in range(rounds):
        alone.append(worker.one_by_one(messages) / messages)
        for prefetch, times in together.items():
            times.append(worker.fused(messages, prefetch) / messages)
    return [
        Row(
            f"prefetch {prefetch}, {durability}",
            median(times),
            median(alone),
            median(single / time for single, time in zip(alone, times, strict=True)),
            at_least=TARGETS[durability],
        )
        for prefetch, times in together.items()
    ]


class _Worker:
    """Takes as many messages as were put before, in either way; the seconds that took."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self._store = SQLiteQueueStore(path, durability=durability)
        self._queue: PersistentQueue[Any] = PersistentQueue(NAME, store=self._store)
        self._when = StoreTime(SYSTEM_CLOCK, self._store.open_clock(SYSTEM_CLOCK))

    def one_by_one(self, messages: int) -> float:
        self._put(messages)
        taken: list[bool] = []
        spent = seconds(lambda: taken.extend(self._take() for _ in range(messages)))
        assert all(taken)
        return spent

    def fused(self, messages: int, prefetch: int) -> float:
        self._put(messages)
        return seconds(lambda: self._take_all(messages, LeaseRequest((NAME,), prefetch)))

    def _put(self, messages: int) -> None:
        self._queue.put_stream(job(number) for number in range(messages))

    def _take(self) -> bool:
        return self._queue.ack(self._queue.get_message(block=False))

    def _take_all(self, messages: int, request: LeaseRequest) -> None:
        done: list[Settle] = []
        while messages > 0:
            _, leased = self._store.settle_and_lease(done, request, now=self._when.now)
            # get_message decodes too.
            assert all(JSON_CODEC.decode(message.body) for message in leased)
            done = [Settle(Receipt(NAME, message.id, message.token), Ack()) for message in leased]
            messages -= len(leased)
        settled, _ = self._store.settle_and_lease(done, None, now=self._when.now)
        assert settled == [Settled.DONE] * len(done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.close()
        self._store.close()
