"""Running counts of a process: the folded counters and the tail of the journal after them.

Exact without counting rows: each event says which state it leaves and enters, so bringing the
counts up to date reads only what is newer than they are.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter

from localqueue.stores.sqlite.sql import SQL


class Counts:
    """How many messages each queue has in each state, and how many leases each worker took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._upto = -1
        self._states: Counter[tuple[int, int]] = Counter()
        self._leases: Counter[tuple[int, str]] = Counter()

    def states(self, db: sqlite3.Connection, queue: int, upto: int) -> list[int]:
        """Counts of the five states of a queue as of ``upto``, the newest committed event."""
        with self._lock:
            self._catch_up(db, upto)
            return [self._states[queue, state] for state in range(5)]

    def leases(self, db: sqlite3.Connection, queue: int, upto: int) -> dict[str, int]:
        with self._lock:
            self._catch_up(db, upto)
            return {
                worker: n for (owner, worker), n in self._leases.items() if owner == queue and n
            }

    def _catch_up(self, db: sqlite3.Connection, upto: int) -> None:
        if self._upto >= upto:
            return
        folded = db.execute(SQL.read_mark, ("fold",)).fetchone()[0]
        if self._upto <= folded:
            # Events up to the fold may be trimmed already, and a purge resets what was counted up
            # to its fold: start again from the counters.
            self._states = Counter({(q, state): n for q, state, n in db.execute(SQL.counters)})
            self._leases = Counter({(q, name): n for q, name, n in db.execute(SQL.worker_leases)})
            self._upto = folded
        for row, times in Counter(db.execute(SQL.event_tail, (self._upto, upto))).items():
            queue, left, entered, n, worker = row
            if left is not None:
                self._states[queue, left] -= n * times
            if entered is not None:
                self._states[queue, entered] += n * times
            if worker is not None:
                self._leases[queue, worker] += n * times
        self._upto = upto
