"""A store and the reader in one process: neither takes the other's locks, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from localqueue import PersistentQueue
from localqueue.errors import StoreBusy
from localqueue.spark.read.sqlite import library as sqlite_read
from localqueue.stores.sqlite import open_files
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.spark.reading import options_of, plan, read, rows_of

PROGRAM = Path(__file__).with_name("reused_worker_program.py")


def test_a_worker_that_spark_uses_again_may_have_the_file_open(store_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, str(PROGRAM), str(store_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    told = json.loads(answer.stdout.splitlines()[-1])

    assert told["pids"] == 1
    assert told["steps"] == {
        "alone": [['"visited"'], ["read_by_adbc"]],
        "while it is open": [['"opened"', '"visited"'], ["read_by_sqlite3"]],
        "after a visit": [
            ['"beside"', '"opened"', '"visited"', '"visited"'],
            ["read_by_sqlite3"],
        ],
        "closed": [
            ['"beside"', '"opened"', '"visited"', '"visited"', '"visited"'],
            ["read_by_adbc"],
        ],
    }
    assert told["stored"] == ["beside"] * 2 + ["opened"] * 2 + ["visited"] * 4
    assert told["sound"]


def inode_of(path: Path) -> open_files.Inode:
    stat = path.stat()
    return stat.st_dev, stat.st_ino


@pytest.fixture
def filled(store_path: Path) -> Path:
    with PersistentQueue[int]("jobs", store_path=store_path) as queue:
        queue.put_many(list(range(100)))
    return store_path


def test_a_store_that_is_opened_during_a_read_waits_for_it(
    filled: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = plan(options_of(url))
    reading, waiting = threading.Event(), threading.Event()
    read_by_adbc = sqlite_read.read_by_adbc

    def slowly(*given: object) -> object:
        reading.set()
        assert waiting.wait(30)
        return read_by_adbc(*given)  # type: ignore[arg-type]

    def wait_for(*given: object) -> bool:
        waiting.set()
        return own_wait(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(sqlite_read, "read_by_adbc", slowly)
    own_wait = open_files._changed.wait_for
    monkeypatch.setattr(open_files._changed, "wait_for", wait_for)
    rows: list[dict[str, object]] = []
    thread = threading.Thread(target=lambda: rows.extend(rows_of(tasks)))
    thread.start()
    assert reading.wait(30)

    with PersistentQueue[int]("jobs", store_path=filled) as queue:
        queue.put(100)
        thread.join()

        assert len(rows) == 100
        assert queue.qsize() == 101


def test_a_reader_leaves_the_file_to_a_store_that_waits_for_it(
    filled: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As it is between two ranges, when the store has not been woken yet.
    monkeypatch.setitem(open_files._waiting, inode_of(filled), 1)

    with pytest.raises(StoreBusy), open_files.alone(inode_of(filled)):
        pass

    assert len(read(url)) == 100


def test_a_store_gives_up_when_another_library_keeps_the_file(filled: Path) -> None:
    store = SQLiteQueueStore(filled, timeout=0.05)

    with open_files.alone(inode_of(filled)), pytest.raises(StoreBusy, match="another SQLite"):
        store.queues()

    assert store.queues() == ["jobs"]
    store.close()


def test_reads_leave_no_claim_on_the_file(filled: Path, url: str) -> None:
    for _ in range(3):
        assert len(read(url)) == 100

    with open_files.alone(inode_of(filled)):
        pass
    with SQLiteQueueStore(filled) as store:
        assert store.check().ok
