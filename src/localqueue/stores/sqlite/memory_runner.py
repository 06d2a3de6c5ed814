"""How verbs get into a database in memory: one thread at a time."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from localqueue.clock import Now
from localqueue.errors import StoreClosed, StoreError
from localqueue.stores.sqlite import connection
from localqueue.stores.sqlite.commit import raise_if_damaged, roll_back, run_calls, run_read
from localqueue.stores.sqlite.group_commit import PLAIN, Call, Manner, Verb
from localqueue.stores.sqlite.identity import Identity
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.view import FileState, View
from localqueue.stores.sqlite.wakeup import Wakeups

R = TypeVar("R")


class MemoryRunner:
    """One database in this process's memory."""

    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self._lock = threading.RLock()
        self._pid = os.getpid()
        connection.check_sqlite()
        self._db: sqlite3.Connection | None = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=256
        )
        connection.configure(self._db)
        connection.bring_up_to_date(self._db, "memory")
        identity = Identity(self._db.execute(SQL.identities).fetchall())
        self._state = FileState(identity, self._db.cursor())

    def write(self, verb: Verb[R], now: Now, manner: Manner = PLAIN) -> R:
        call: Call[R] = Call(verb, now, 0.0)
        with self._opened() as db:
            try:
                self._state.hand.execute("BEGIN IMMEDIATE")
                (tx,) = run_calls(db, self._state, [call])
                self._state.hand.execute("COMMIT")
                tx.committed()
            except BaseException as error:
                roll_back(db)
                self._state.upto = None
                raise_if_damaged(db, error, "memory")
                raise
        self._wakeups.tell(tx.ready, tx.room)
        return call.answer

    def read(self, verb: Callable[[View], R], *, lasting: bool = False) -> R:
        with self._opened() as db:
            return run_read(db, self._state, verb, "memory")

    def close(self) -> None:
        with self._lock:
            if self._db is not None and self._pid == os.getpid():
                self._db.close()
            self._db = None

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        if self._pid != os.getpid():
            raise StoreError("a memory store does not cross a fork; make one in the child")
        with self._lock, connection.translated("memory"):
            if self._db is None:
                raise StoreClosed("the memory store was closed")
            yield self._db
