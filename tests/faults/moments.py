"""Running one operation again and again to different moments, and comparing what it leaves."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from localqueue.errors import StoreError
from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.faults.nursery import Nursery
from tests.faults.operations import open_queue
from tests.faults.oracle import Entry, read_oracle
from tests.faults.soundness import Unsound, check_file

NEVER_THE_SAME = {
    *("at", "pos", "due_at", "created_at", "leased_at", "enqueued_at", "failed_at", "expires_at"),
    *("last_seen", "updated_at", "waited", "entries", "boot_id", "offset", "bits", "checksum"),
}
UP_TO_WHICH_EVENT = ("mark", "daybook")
"""The daybook was posted: not the same for what was noted and for what went to the tables."""
NOT_REPLAYED = {"trim", "migration", "last migration", "a book of a later time"}
Signature = list[tuple[Any, ...]]


class Ended(NamedTuple):
    """What a worker has left behind."""

    found: Signature
    answers: list[Entry]


class Between(AssertionError):
    """Neither the state before the operation nor the one after it."""


class Moments:
    """One operation; every run begins with the same file and ends with the death of the worker."""

    def __init__(self, nursery: Nursery, folder: Path, name: str) -> None:
        self.name = name
        self._nursery = nursery
        self._folder = folder
        (folder / "begin").mkdir()
        begin = str(folder / "begin" / "queue.sqlite3")
        assert nursery.run("operations:make", begin, name) == 0
        self.before = self.run("run", 0, None).found
        self.after = self.run("run", None, None).found

    def run(self, work: str, *arguments: Any, goes_on: bool = True) -> Ended:
        """Run a function of ``operations`` on a fresh copy of the file."""
        folder = self._folder / "run"
        shutil.copytree(self._folder / "begin", folder, ignore=shutil.ignore_patterns("*-run"))
        path, oracle = folder / "queue.sqlite3", folder / "oracle"
        status = self._nursery.run(
            f"operations:{work}", str(path), str(oracle), self.name, *arguments
        )
        assert status == -9, "the worker failed"
        _post(path)
        found = self._signature(path)
        if goes_on:
            _go_on(path)
            assert not Companions(path).daybook.exists()
            self._signature(path)
        answers = read_oracle(oracle)
        shutil.rmtree(folder)
        return Ended(found, answers)

    def check(self, ended: Ended, moment: int | None) -> None:
        if ended.found not in (self.before, self.after):
            raise Between(f"{self.name}, moment {moment}: {ended.found[-3:]}")

    def _signature(self, path: Path) -> Signature:
        # What is trimmed cannot be replayed, nor what the first version did, nor what a boot skips.
        return _signature(path, trimmed=self.name in NOT_REPLAYED)


def some(count: int, few: int | None) -> list[int]:
    """All moments, or a few of them, the first and the last included."""
    if few is None or count <= few:
        return list(range(1, count + 1))
    return sorted({1 + round(step * (count - 1) / (few - 1)) for step in range(few)})


def _signature(path: Path, *, trimmed: bool) -> Signature:
    """Everything that is stored, but no times and nothing random."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as db:
        shape = db.execute("SELECT name, sql, type FROM sqlite_master ORDER BY name").fetchall()
        if not shape:
            return []
        found = [db.execute("PRAGMA user_version").fetchone(), *shape]
        for table in (name for name, _, kind in shape if kind == "table"):
            info = db.execute(f"PRAGMA table_info({table})").fetchall()
            columns = ", ".join(column[1] for column in info if column[1] not in NEVER_THE_SAME)
            rows = db.execute(f"SELECT {columns} FROM {table}").fetchall() if columns else []
            found += [(table, *row) for row in rows if (table, row[0]) != UP_TO_WHICH_EVENT]
    check_file(path, trimmed=trimmed)
    return found


def _post(path: Path) -> None:
    """Have the next process bring into the tables what the killed one has noted."""
    if Companions(path).daybook.exists():
        try:
            with SQLiteQueueStore(path) as store:
                store.queues()
        except StoreError as error:
            raise Unsound(f"its daybook cannot be posted: {error}") from error


def _go_on(path: Path) -> None:
    """The next process uses the file as if nothing had happened."""
    queue = open_queue(path)
    queue.put("from the next process")
    taken = queue.get_messages(10, block=False)
    assert taken
    assert all(queue.ack_many(taken))
    queue.store.close()
