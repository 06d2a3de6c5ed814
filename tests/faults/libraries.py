"""A process in which two SQLite libraries want the same file: Python's sqlite3, and apsw's own."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localqueue.errors import StoreBusy, StoreError
from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite import open_files
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.faults.oracle import Oracle

LOOK = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT * FROM sqlite_master')"


def meet_without_a_store(path: str, oracle: str, both: bool) -> None:
    """sqlite3 writes to a file while apsw opens and closes it, or does not, in between."""
    told = Oracle(oracle)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE IF NOT EXISTS note (text)")
    db.execute("INSERT INTO note VALUES ('before')")
    if both:
        _read_with_apsw(path)
    _look_from_another_process(path)
    db.execute("INSERT INTO note VALUES ('after')")
    told.answered("put", "after")
    os._exit(0)


def meet_in_a_store(path: str, oracle: str, durability: str, defect: str | None) -> None:
    """The same with a store, where apsw asks the registry first, as whoever brings a library must.

    The defect is a registry that never says no.
    """
    told = Oracle(oracle)
    store = SQLiteQueueStore(path, durability=durability)  # type: ignore[arg-type]
    queue: PersistentQueue[str] = PersistentQueue("jobs", store=store)
    queue.put("before")
    stat = Path(path).stat()
    alone = _always if defect == "LetsEverybodyIn" else open_files.alone
    try:
        with alone((stat.st_dev, stat.st_ino)):
            _read_with_apsw(path)
            told.answered("apsw", "read it")
    except StoreBusy:
        told.answered("apsw", "refused")
    _look_from_another_process(path)
    try:
        queue.put("after")
        told.answered("put", "after")
    except StoreError as error:
        told.answered("put", type(error).__name__)
    os._exit(0)


@contextmanager
def _always(inode: open_files.Inode) -> Iterator[None]:
    yield


def _read_with_apsw(path: str) -> None:
    import apsw

    db = apsw.Connection(path)
    db.execute("SELECT * FROM sqlite_master").fetchall()
    # Takes away the locks that the other library has in this process.
    db.close()


def _look_from_another_process(path: str) -> None:
    """It takes itself for the last one that has the file, and clears away the -wal."""
    subprocess.run([sys.executable, "-c", LOOK, path], check=True)
