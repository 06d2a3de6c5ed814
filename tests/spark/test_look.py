"""Looking at the file of a store without the right to write it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from localqueue.stores.protocol import Put
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.unit.stores.phrases import note_at_once

AS_SOMEBODY_WHO_READS = """
    import os, sys
    from pathlib import Path
    from localqueue import LocalQueueError
    from localqueue.spark.read.sqlite.look import Look
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    try:
        look = Look(Path(sys.argv[1]))
        with look.snapshot() as db:
            print(db.execute("SELECT count(*) FROM message").fetchone()[0])
    except LocalQueueError as error:
        print(type(error).__name__, error)
    """


@pytest.fixture
def path() -> Iterator[Path]:
    """In a folder that other users can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder / "queue.sqlite3"
        folder.chmod(0o755)


@pytest.fixture
def store(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SQLiteQueueStore]:
    note_at_once(monkeypatch)
    with SQLiteQueueStore(path) as store:
        store.configure("jobs", {}, now=1.0)
        put(store)
        put(store)
        assert path.with_name(f"{path.name}-daybook").exists()
        yield store
        path.parent.chmod(0o755)


def put(store: SQLiteQueueStore) -> None:
    store.enqueue_many([Put("jobs", b"1")], now=1.0)


def seen(path: Path, unread: str = "nothing") -> str:
    """What somebody says who may read all but one of the files, and write none."""
    for file in path.parent.iterdir():
        if file.is_file():
            file.chmod(0o600 if file.name.endswith(unread) else 0o444)
    path.parent.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(AS_SOMEBODY_WHO_READS), str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_who_may_only_read_sees_what_is_posted(path: Path, store: SQLiteQueueStore) -> None:
    store.queues()

    assert seen(path) == "2"


def test_who_may_only_read_is_told_what_to_do_where_something_is_noted(
    path: Path, store: SQLiteQueueStore
) -> None:
    said = seen(path)

    assert said.startswith(f"StoreReadOnly {path}: its newest messages may stand in")
    assert "needs the right to write" in said


@pytest.mark.skipif(os.getuid() != 0, reason="only root has files that others may not read")
def test_who_may_not_even_read_the_daybook_is_told_the_same(
    path: Path, store: SQLiteQueueStore
) -> None:
    store.queues()

    said = seen(path, unread="-daybook")

    assert said.startswith(f"StoreReadOnly {path}: its newest messages may stand in")
