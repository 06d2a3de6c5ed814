"""Keeps workers at work on a file and kills one after the other, at moments of a seed."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any, Self

from tests.crash.diary import Progress, read
from tests.crash.reckoning import Reckoning, read_journal
from tests.crash.working import Queue, job, open_queue
from tests.faults.nursery import PATIENCE, Nursery

WORK = "tests.crash.working:work"
WORKERS = 2
LONGEST_HANDLER = 0.004
LATEST = 0.01
"""How long after the effect that it waits for a kill may come."""


class Killings:
    """Messages of one queue, and the workers that drain it."""

    def __init__(
        self,
        nursery: Nursery,
        folder: Path,
        *,
        seed: int,
        kind: str = "thread",
        durability: str = "relaxed",
        delivery: str = "at-least-once",
        defect: str | None = None,
    ) -> None:
        self.killed: set[str] = set()
        self._nursery = nursery
        self._chance = random.Random(seed)
        self._path = folder / "queue.sqlite3"
        self._diary = folder / "diary"
        self._given = (durability, kind, delivery)
        self._defect = defect
        self._places: list[tuple[str, int]] = []
        self._started = 0
        self.queue: Queue = open_queue(str(self._path), durability, delivery)
        self._progress = Progress(self._diary)

    def put(self, messages: int) -> list[str]:
        """Their ids."""
        return [
            self.queue.put(
                job(self._diary, self._chance.random(), LONGEST_HANDLER), dedupe_key=str(number)
            ).id
            for number in range(messages)
        ]

    def drain(self, messages: int, kills: int) -> None:
        """Until nothing is left; each kill waits for as many effects as the seed says."""
        self._places = [self._start() for _ in range(WORKERS)]
        for effects in sorted(self._chance.sample(range(messages * 9 // 10), kills)):
            self._wait_until(
                lambda least=effects: self._progress.effects() >= least, "nobody works"
            )
            time.sleep(self._chance.uniform(0, LATEST))
            place = self._chance.randrange(WORKERS)
            self._kill(*self._places[place])
            self._places[place] = self._start()
        self._wait_until(self._is_done, "it is never done")
        for name, pid in self._places:
            # One that was started last may not have begun yet, when the others have done it all.
            self._wait_until(lambda pid=pid: hears(pid, signal.SIGTERM), f"{name} never began")
            os.kill(pid, signal.SIGTERM)
            assert self._nursery.wait(pid) == 0, f"{name} did not stop well"

    def reckon(self, put: list[str]) -> Reckoning:
        return Reckoning(put, read(self._diary), read_journal(self.queue.store))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.close()
        self.queue.store.close()

    def _is_done(self) -> bool:
        stats = self.queue.stats()
        return stats.total == stats.dead

    def _start(self) -> tuple[str, int]:
        name = f"worker-{self._started}"
        self._started += 1
        given = (str(self._path), str(self._diary), *self._given, name, self._defect)
        return name, self._nursery.start(WORK, *given)

    def _kill(self, name: str, pid: int) -> None:
        assert self._nursery.kill(pid) == -signal.SIGKILL, f"{name} ended by itself"
        self.killed.add(name)

    def _wait_until(self, is_so: Any, otherwise: str) -> None:
        end = time.monotonic() + PATIENCE
        while not is_so():
            if time.monotonic() > end:
                raise AssertionError(f"{otherwise}: {self.queue.stats()}")
            time.sleep(0.002)


def hears(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for the signal, which would end it otherwise."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False
