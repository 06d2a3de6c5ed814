"""A copy of a file that is in use: complete, consistent and verified, or not there at all."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localqueue.errors import StoreCorrupt, StoreFull
from localqueue.stores.sqlite import connection
from localqueue.stores.sqlite.identity import Identity
from localqueue.stores.sqlite.new_life import mark_copy
from localqueue.stores.sqlite.operations.new_file import check_target, new_file
from localqueue.stores.sqlite.operations.snapshot import Progress, Snapshot, in_one_snapshot
from localqueue.stores.sqlite.sql import SQL

SLICE = 256
"""Pages that are copied between two looks at who wants something."""
_COUNTED = ("queue", "message", "event")


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What was copied."""

    path: str
    bytes: int
    queues: int
    messages: int
    events: int
    position: str
    """The journal's end in the copy: everything up to it is there."""
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def backup(
    path: Path,
    target: str | Path,
    *,
    timeout: float,
    overwrite: bool = False,
    on_progress: Progress | None = None,
) -> BackupReport:
    """Copy the file at ``path`` as it is at one moment; see ``SQLiteQueueStore.backup``."""
    began = time.monotonic()
    goal = check_target(target, path, overwrite=overwrite)

    def work(snapshot: Snapshot) -> BackupReport:
        newest = snapshot.db.execute(SQL.last_seq).fetchone()
        seq = 0 if newest is None else newest[0]
        identity = Identity(snapshot.db.execute(SQL.identities).fetchall())
        with new_file(goal, overwrite=overwrite) as temporary:
            with connection.translated(str(goal)):
                _check_room(snapshot.db, goal)
                _copy(snapshot, temporary, on_progress)
                queues, messages, events = _verify(snapshot, temporary, seq)
            size = temporary.stat().st_size
        seconds = time.monotonic() - began
        position = identity.public(seq)
        return BackupReport(str(goal), size, queues, messages, events, position, seconds)

    return in_one_snapshot(path, timeout, work)


def _check_room(db: sqlite3.Connection, goal: Path) -> None:
    """Said at once, and not after an hour of copying."""
    needed = _pragma(db, "page_count") * _pragma(db, "page_size")
    free = shutil.disk_usage(goal.parent).free
    if free < needed:
        raise StoreFull(
            f"{goal}: the copy needs {needed:,} bytes, and the disk has {free:,}; nothing was left"
        )


def _copy(snapshot: Snapshot, temporary: Path, on_progress: Progress | None) -> None:
    def slice_done(_: int, remaining: int, total: int) -> None:
        snapshot.pause()
        if on_progress is not None:
            on_progress(total - remaining, total)

    with _connected(temporary) as copy:
        # It is synced once, at its end, and thrown away if it does not come to that.
        for pragma in ("journal_mode", "synchronous"):
            copy.execute(f"PRAGMA {pragma} = off")
        # Inside the snapshot's transaction: what others commit meanwhile does not start it anew.
        snapshot.db.backup(copy, pages=SLICE, progress=slice_done)


def _verify(snapshot: Snapshot, temporary: Path, newest: int) -> list[int]:
    """Compare the copy with the snapshot, and mark it; what it holds."""
    with _connected(temporary) as copy:
        snapshot.can_interrupt(copy)
        copy.execute("PRAGMA locking_mode = exclusive")
        # One file, without companions, that can also be read where nothing may be written.
        copy.execute("PRAGMA journal_mode = delete")
        mark_copy(copy, newest)
        problems = [row[0] for row in copy.execute("PRAGMA integrity_check(1)")]
        if problems != ["ok"]:
            raise StoreCorrupt(
                f"the file is damaged, and so is its copy, which was removed ({problems[0]});"
                " see check() and salvage()"
            )
        here, there = _counts(snapshot.db), _counts(copy)
        if here != there:
            raise StoreCorrupt(f"the copy holds {there} of {here} {_COUNTED}; it was removed")
    return there


def _counts(db: sqlite3.Connection) -> list[int]:
    return [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in _COUNTED]


@contextlib.contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None)
    try:
        yield db
    finally:
        db.close()


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])
