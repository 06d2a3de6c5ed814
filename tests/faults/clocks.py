"""A clock for several processes that a test sets, and workers that live by it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from queue import Empty
from typing import Any

from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite.daybook import book
from localqueue.stores.sqlite.daybook.file import DaybookFile
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.faults.oracle import Oracle

LEASE = 0.3
Queue = PersistentQueue[Any]


class SharedClock:
    """The clock of a host: real seconds, but its wall clock, its boot and its start can be set."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def set(self, *, wall: float = 0.0, boot: str = "boot-1", since: float = 0.0) -> None:
        """The wall clock goes wrong by so much; ``since`` is when this boot began."""
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_text(json.dumps([wall, boot, since]))
        new.replace(self._path)

    def wall(self) -> float:
        return time.time() + float(self._read()[0])

    def steady(self) -> float:
        return time.clock_gettime(time.CLOCK_MONOTONIC) - float(self._read()[2])

    def boot_id(self) -> str:
        return str(self._read()[1])

    def _read(self) -> list[Any]:
        found: list[Any] = json.loads(self._path.read_text())
        return found


class WallClockOnly(SharedClock):
    """The defect: time is what the wall clock says."""

    def steady(self) -> float:
        return self.wall()


class KnowsNoBoots(SharedClock):
    """The defect: a new boot looks like the old one."""

    def boot_id(self) -> str:
        return "always"


CLOCKS = {kind.__name__: kind for kind in (SharedClock, WallClockOnly, KnowsNoBoots)}


def open_queue(
    path: str | Path, clock: SharedClock, lease: float = LEASE, durability: Any = "full"
) -> Queue:
    store = SQLiteQueueStore(path, durability=durability, timeout=30.0)
    return PersistentQueue("jobs", store=store, lease_timeout=lease, clock=clock)


def keep_taking(path: str, oracle: str, clock: str, kind: str) -> None:
    """Lease whatever comes, and never settle it: every lease has to end by itself."""
    book.WARM_UP = 0
    told = Oracle(oracle)
    queue = open_queue(path, CLOCKS[kind](clock))
    while True:
        began = time.monotonic()
        try:
            message = queue.get_message(timeout=0.02)
        except Empty:
            continue
        told.answered("get", message.value, message.token, began, time.monotonic())


def take_and_die(path: str, oracle: str, clock: str, kind: str) -> None:
    """Hold a message for an hour, in a process that the end of the host takes away."""
    book.WARM_UP = 0
    queue = open_queue(path, CLOCKS[kind](clock), lease=3600, durability="relaxed")
    # What a process is asked for first goes to the tables.
    queue.record_worker_heartbeat("w1")
    message = queue.get_message(block=False)
    noted = DaybookFile.open(Path(f"{path}-daybook"))
    assert noted is not None
    assert noted.first_seq() == message.token, "the lease was noted"
    Oracle(oracle).answered("get", message.id, message.token)
    os._exit(0)


def take_all(path: str, oracle: str, clock: str, kind: str) -> None:
    """Lease what is there for an hour, and leave."""
    book.WARM_UP = 0
    told = Oracle(oracle)
    queue = open_queue(path, CLOCKS[kind](clock), lease=3600)
    try:
        while True:
            message = queue.get_message(block=False)
            told.answered("get", message.value, message.attempts, message.crashes)
    except Empty:
        return
