"""Running counts of a process: the folded counters and the tail of the journal after them.

Exact without counting rows: each event says which state it leaves and enters. What a process
commits itself it adds without reading; of others' events it reads only what is newer.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Sequence

from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.tally import Happened, Tally


class Counts:
    """How many messages each queue has in each state, and how many leases each worker took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Start again from the counters, for when something counted here came to nothing."""
        with self._lock:
            self._folded = self._upto = -1
            self._counters = Tally()
            self._tail = Tally()
            self._own: list[Happened] = []

    def states(self, db: sqlite3.Connection, queue: int, upto: int) -> list[int]:
        """Counts of the five states of a queue as of ``upto``, the newest committed event."""
        with self._lock:
            self._catch_up(db, upto)
            counters, tail = self._counters.moves, self._tail.moves
            keys = [(queue, state) for state in range(5)]
            return [counters.get(key, 0) + tail.get(key, 0) for key in keys]

    def leases(self, db: sqlite3.Connection, queue: int, upto: int) -> dict[str, int]:
        with self._lock:
            self._catch_up(db, upto)
            leases = Tally().merge(self._counters).merge(self._tail).leases
            return {worker: n for (owner, worker), n in leases.items() if owner == queue and n}

    def since_fold(self, db: sqlite3.Connection, folded: int, upto: int) -> Tally:
        """What the counters of the file do not have yet, as of ``upto``."""
        with self._lock:
            if self._folded != folded:
                self._upto = -1
            self._catch_up(db, upto)
            return Tally().merge(self._tail)

    def add(self, committed: Sequence[Happened]) -> None:
        """What this process has committed; the journal was folded between one and the next.

        When others have committed in between, it is read from the journal like theirs, when needed.
        """
        with self._lock:
            for happened in committed:
                if happened.start != self._upto:
                    return
                if happened is not committed[0]:
                    self._take_in_own()
                    self._counters.merge(self._tail)
                    self._tail = Tally()
                    self._folded = self._upto
                if happened.shapes:
                    self._own.append(happened)
                self._upto = happened.upto

    def _take_in_own(self) -> None:
        """Most commits are never asked for: they are added up when a fold or somebody asks."""
        for happened in self._own:
            self._tail.add(happened.shapes)
        self._own.clear()

    def _catch_up(self, db: sqlite3.Connection, upto: int) -> None:
        self._take_in_own()
        if self._upto >= upto:
            return
        folded = db.execute(SQL.read_mark, ("fold",)).fetchone()[0]
        if self._upto <= folded:
            # Events up to the fold may be trimmed already, and a purge resets what was counted up
            # to its fold: start again from the counters.
            self._counters = counters = Tally()
            counters.moves = {(queue, state): n for queue, state, n in db.execute(SQL.counters)}
            counters.leases = {(queue, name): n for queue, name, n in db.execute(SQL.worker_leases)}
            self._tail = Tally()
            self._folded = self._upto = folded
        self._tail.add(Counter(db.execute(SQL.event_tail, (self._upto, upto))))
        self._upto = upto
