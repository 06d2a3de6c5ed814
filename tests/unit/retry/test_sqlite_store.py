"""What attempt records in a file survive."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from localqueue import PersistentQueue, SQLiteQueueStore, StoreBusy, StoreCorrupt, StoreUnsupported
from localqueue.retry import (
    AttemptStoreLockedError,
    PersistentRetryExhausted,
    PersistentRetrying,
    RecordAttemptStore,
    RetryRecord,
    SQLiteAttemptStore,
)
from localqueue.stores.records import RecordChange

CRASH = """
import os, signal, sys
from localqueue.retry import PersistentRetrying

def crash():
    print("began", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

PersistentRetrying(store_path=sys.argv[1], key="a", max_tries=2, count_crashes=True)(crash)
"""

FAIL = """
import sys
from tenacity import wait_none
from localqueue.retry import PersistentRetrying

left = iter(range(int(sys.argv[2])))

def fail():
    if next(left, None) is not None:
        raise KeyError

PersistentRetrying(store_path=sys.argv[1], key="a", wait=wait_none(), clear_on_success=False)(fail)
"""


def python(code: str, *args: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)], stdout=subprocess.PIPE, text=True
    )


def test_attempts_during_which_the_process_was_killed_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "retries.sqlite3"
    for _ in range(2):
        process = python(CRASH, path)
        out, _ = process.communicate(timeout=60)
        assert (out, process.returncode) == ("began\n", -signal.SIGKILL)

    retrying = PersistentRetrying(store_path=path, key="a", max_tries=2, count_crashes=True)
    with pytest.raises(PersistentRetryExhausted) as refused:
        retrying(lambda: pytest.fail("it was called"))

    assert refused.value.attempts == 2


def test_failures_of_several_processes_under_one_key_are_all_counted(tmp_path: Path) -> None:
    path = tmp_path / "retries.sqlite3"
    SQLiteAttemptStore(path).load("a")

    processes = [python(FAIL, path, 20) for _ in range(3)]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0

    with SQLiteAttemptStore(path) as store:
        record = store.load("a")
    assert record is not None
    assert record.attempts == 60


def test_a_store_that_another_process_holds_raises_its_own_error(tmp_path: Path) -> None:
    path = tmp_path / "retries.sqlite3"
    with SQLiteAttemptStore(path, 0.05) as store:
        store.save("a", RetryRecord(1, 5.0))
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        try:
            with pytest.raises(AttemptStoreLockedError) as locked:
                store.save("a", RetryRecord(2, 5.0))
        finally:
            holder.rollback()
            holder.close()

        assert locked.value.path == path
        assert isinstance(locked.value, StoreBusy)
        assert issubclass(AttemptStoreLockedError, RuntimeError)
        assert store.load("a") == RetryRecord(1, 5.0)


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "retries.sqlite3"
    with SQLiteAttemptStore(path) as store:
        store.save("a", RetryRecord(1, 5.0))
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 9999")
    db.close()

    with SQLiteAttemptStore(path) as store, pytest.raises(StoreUnsupported):
        store.load("a")


def test_attempts_may_lie_in_the_file_of_a_queue(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    with SQLiteQueueStore(path) as store:
        RecordAttemptStore(store).save("a", RetryRecord(1, 5.0))
        queue: PersistentQueue[str] = PersistentQueue("jobs", store=store)
        queue.put("job")

    with SQLiteAttemptStore(path) as attempts:
        assert attempts.load("a") == RetryRecord(1, 5.0)


def test_what_is_no_attempt_record_is_an_error_and_not_a_fresh_budget(tmp_path: Path) -> None:
    with SQLiteQueueStore(tmp_path / "queue.sqlite3") as store:
        attempts = RecordAttemptStore(store)
        for value in (
            b"",
            b"[]",
            b'{"v": 2, "attempts": 1, "first_attempt_at": 0, "exhausted": 0}',
        ):
            store.change_records([RecordChange("attempt", "a", value)], now=0.0)
            with pytest.raises(StoreCorrupt, match="attempt record"):
                attempts.load("a")


def test_pruning_reads_no_more_than_what_is_old(tmp_path: Path) -> None:
    with SQLiteQueueStore(tmp_path / "queue.sqlite3") as store:
        attempts = RecordAttemptStore(store)
        for n in range(20):
            attempts.save(f"old {n}", RetryRecord(3, 100.0 + n, True))
            attempts.save(f"new {n}", RetryRecord(3, 9_000.0 + n, True))
        # What is young is not even looked at: it could not be read.
        for n in range(20):
            store.change_records([RecordChange("attempt", f"new {n}", b"?")], now=0.0)

        assert attempts.count_exhausted_older_than(older_than=1000.0, now=5000.0) == 20
        assert attempts.prune_exhausted(older_than=1000.0, now=5000.0) == 20
        assert store.scan_records("attempt-exhausted", now=0.0, limit=1)[0].key.startswith(
            "0000000009000"
        )
