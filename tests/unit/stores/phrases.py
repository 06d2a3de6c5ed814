"""Short ways to say what a test does with files of the SQLite store."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite.daybook import book
from localqueue.stores.sqlite.daybook.book import Daybook
from localqueue.stores.sqlite.daybook.entries import Entry
from localqueue.stores.sqlite.daybook.planning import Noting

PATIENCE = 20.0
"""How long a test waits for what must happen; only a failing one waits that long."""

Queue = PersistentQueue[Any]
Picture = dict[str, tuple[int, bytes | None]]


def picture(folder: Path) -> Picture:
    """The folder's listing, with modes and contents; without what only helps an open store."""
    return {
        path.name: (path.stat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in folder.iterdir()
        if not path.name.endswith("-run")
    }


def filled(path: Path, *values: Any) -> Path:
    """A file of ours, closed, with these messages in the queue "jobs"."""
    with PersistentQueue[Any]("jobs", store_path=path) as queue:
        queue.put_many(values)
    return path


def contents(path: Path) -> list[Any]:
    with PersistentQueue[Any]("jobs", store_path=path) as queue:
        return [message.value for message in queue.peek(10_000)]


def delete(path: Path) -> None:
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        (path.parent / name).unlink(missing_ok=True)


def note_nothing(patch: pytest.MonkeyPatch) -> None:
    """Stores that are opened from now on run every call as a transaction."""
    patch.setattr(book, "WARM_UP", sys.maxsize)


def note_at_once(patch: pytest.MonkeyPatch) -> None:
    """Stores that are opened from now on note the first call that can be noted."""
    patch.setattr(book, "WARM_UP", 0)


def count_noted(patch: pytest.MonkeyPatch) -> list[Entry]:
    """Every entry that any store of this process notes from now on."""
    noted: list[Entry] = []
    note = Daybook.note

    def counted(self: Daybook, noting: Noting, *, starts: bool = False) -> bool:
        done = note(self, noting, starts=starts)
        if done:
            noted.extend(noting.entries)
        return done

    patch.setattr(Daybook, "note", counted)
    return noted


def run_program(program: str, path: Path) -> str:
    """A program in a process of its own: forking is safe where no test runner has threads."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


CALLS: dict[str, Callable[[Queue], object]] = {
    "put": lambda queue: queue.put("a"),
    "get": lambda queue: queue.get(block=False),
    "qsize": lambda queue: queue.qsize(),
}
