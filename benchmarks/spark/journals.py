"""A store with a journal as work leaves it: puts, leases and ends, retries and dead letters."""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing
from itertools import cycle
from pathlib import Path
from typing import Any, Self

from benchmarks.values import job
from localqueue import Journal, PersistentQueue
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.testing.clock import ManualClock

QUEUES = ("orders", "mails", "images", "invoices")
WORKERS = 8
AT_ONCE = 100
"""Messages that are put, leased and ended together."""
FAILING, DYING = 0.05, 0.01
"""How many attempts fail and are tried again, and how many make a dead letter."""
DAY = 8 * 3600.0
"""Over how many seconds a million events are spread."""
KEEP_ALL = Journal(max_age=365 * 86_400.0, max_rows=1_000_000_000)


class BusyStore:
    """Queues at work, by a clock that passes a working day in seconds."""

    def __init__(self, path: Path, *, at_once: int = AT_ONCE, every: float | None = None) -> None:
        self._path = path
        self._clock = ManualClock(time.time() - 30 * 86_400)
        self._store = SQLiteQueueStore(path, durability="relaxed")
        self._queues: list[PersistentQueue[Any]] = [
            PersistentQueue(name, store=self._store, clock=self._clock, journal_policy=KEEP_ALL)
            for name in QUEUES
        ]
        self._random = random.Random(7)
        self._at_once = at_once
        self._pause = (every or DAY * 3 * at_once / 1_000_000) / 3
        """Seconds between two steps of a round."""
        self.url = f"sqlite:///{path}"

    @property
    def events(self) -> int:
        """How many events the journal has."""
        if not self._path.exists():
            return 0
        with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)) as db:
            found: int = db.execute("SELECT count(*) FROM event").fetchone()[0]
            return found

    def work(self, upto: int) -> None:
        """Until the journal has so many events, and those of the last two rounds."""
        wanted, rounds = upto - self.events, cycle(self._queues)
        if wanted > 0:
            # Numbers leap when somebody with another clock had the store meanwhile.
            self._round(next(rounds))
            start = self._newest()
            while self._newest() - start < wanted:
                self._round(next(rounds))

    def _newest(self) -> int:
        return int(self._store.journal_end()[16:], 16)

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _round(self, queue: PersistentQueue[Any]) -> None:
        chance = self._random
        queue.put_many([job(number) for number in range(self._at_once)])
        self._clock.advance(self._pause * chance.uniform(0.2, 1.8))
        worker = f"worker-{chance.randrange(WORKERS)}"
        done = []
        # Retries of earlier rounds that are due come with them.
        leased = queue.get_messages(self._at_once + self._at_once // 10, leased_by=worker)
        self._clock.advance(self._pause * chance.uniform(0.2, 1.8))
        for message in leased:
            luck = chance.random()
            if luck < DYING:
                queue.dead_letter(message, error=KeyError(f"no customer {chance.randrange(9)}"))
            elif luck < DYING + FAILING:
                delay = 0.0 if chance.random() < 0.5 else self._pause
                queue.release(message, delay, error=TimeoutError("the service does not answer"))
            else:
                done.append(message)
        queue.ack_many(done)
        self._clock.advance(self._pause * chance.uniform(0.2, 1.8))
