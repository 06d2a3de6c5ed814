"""When an answer is given, and what a disk that fails does to those that follow."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localqueue.errors import StoreError
from localqueue.message import Receipt
from localqueue.stores.protocol import LeaseRequest
from localqueue.stores.sqlite import durability, opened
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.stores.sqlite.turnstile import SYNC_FAILED, Turnstile
from localqueue.stores.sqlite.view import Transaction
from tests.unit.stores.engine.phrases import (
    QUEUE,
    lease_all,
    make_store,
    meeting,
    put,
    runner_of,
)


class Disk:
    """Stands between the store and ``fdatasync``: counts, and fails when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs = 0
        self.fails = False
        self._sync: Callable[[int], None] = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", self._called)

    def _called(self, descriptor: int) -> None:
        self.syncs += 1
        if self.fails:
            raise OSError(errno.EIO, "Input/output error")
        self._sync(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.mark.parametrize("where", ["tables_only", "noting"])
def test_a_full_store_syncs_puts_and_acks_before_it_answers_and_a_relaxed_one_does_not(
    tmp_path: Path, disk: Disk, where: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(where)
    for kind, syncs in (("full", 2), ("relaxed", 0)):
        folder = tmp_path / kind
        folder.mkdir()
        with make_store(folder, durability=kind) as store:
            put(store)
            disk.syncs = 0
            put(store)
            (leased,) = store.lease(LeaseRequest((QUEUE,), 1), now=1.0)
            store.ack_many([Receipt(QUEUE, leased.id, leased.token)], now=1.0)

            assert disk.syncs == syncs


@pytest.mark.usefixtures("tables_only")
def test_a_lease_waits_for_the_disk_only_where_it_removes(tmp_path: Path, disk: Disk) -> None:
    with make_store(tmp_path) as store:
        put(store)
        put(store)
        disk.syncs = 0

        (leased,) = store.lease(LeaseRequest((QUEUE,), 1), now=1.0)
        store.extend([Receipt(QUEUE, leased.id, leased.token)], timeout=9.0, now=1.0)
        assert disk.syncs == 0

        store.lease(LeaseRequest((QUEUE,), 1, remove=True), now=1.0)
        assert disk.syncs == 1


def test_what_the_journal_shows_no_power_cut_undoes(tmp_path: Path, disk: Disk) -> None:
    with make_store(tmp_path) as store:
        put(store)
        lease_all(store)
        disk.syncs = 0

        assert [event.kind for event in store.journal()][-1] == "leased"

        assert disk.syncs == 1


def test_a_call_that_finds_nothing_does_not_wait_for_the_disk(tmp_path: Path, disk: Disk) -> None:
    with make_store(tmp_path) as store:
        lease_all(store)
        disk.syncs = 0

        assert lease_all(store) == []

        assert disk.syncs == 0


def test_sqlite_itself_syncs_only_at_checkpoints(tmp_path: Path) -> None:
    with make_store(tmp_path, durability="full") as store:
        assert runner_of(store).exclusively(
            lambda db: db.execute("PRAGMA synchronous").fetchone()
        ) == (1,)


@pytest.mark.usefixtures("tables_only")
def test_a_relaxed_store_has_the_system_begin_to_write_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    monkeypatch.setattr(durability, "_start_writing", begun.append)

    with make_store(tmp_path, durability="relaxed") as store:
        for _ in range(3 * opened.WRITE_BEHIND):
            put(store)

    assert len(begun) == 3


def test_a_full_store_has_the_disk_at_work_before_it_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    with make_store(tmp_path, durability="full") as store:
        put(store)
        monkeypatch.setattr(durability, "_start_writing", lambda _: done.append("begun"))
        monkeypatch.setattr(os, "fdatasync", lambda _: done.append("waited"))

        put(store)
        lease_all(store)

        assert done == ["begun", "waited"]


@pytest.mark.parametrize("where", ["tables_only", "noting"])
def test_a_quick_disk_is_given_a_moment_and_a_slow_one_is_waited_for_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(where)
    begun: list[float] = []
    waited: list[float] = []

    def begin(_: int) -> bool:
        begun.append(time.perf_counter())
        return True

    def wait(_: int) -> None:
        waited.append(time.perf_counter())
        time.sleep(0.002)

    with make_store(tmp_path, durability="full") as store:
        for _ in range(10):
            put(store)
        monkeypatch.setattr(durability, "A_MOMENT", 0.3)
        monkeypatch.setattr(durability, "QUICK", 10.0)
        monkeypatch.setattr(durability, "_start_writing", begin)
        monkeypatch.setattr(os, "fdatasync", wait)

        put(store)
        monkeypatch.setattr(durability, "QUICK", 0.001)
        put(store)

    quick, slow = (end - start for start, end in zip(begun[:2], waited[:2], strict=True))
    assert slow < 0.3 <= quick


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a file is asked for itself")
def test_nobody_asks_for_the_times_of_the_wal_between_two_puts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    stat = os.stat

    def seen(path: Any, **options: Any) -> os.stat_result:
        asked.append(str(path))
        return stat(path, **options)

    with make_store(tmp_path, durability="full") as store:
        put(store)
        monkeypatch.setattr(os, "stat", seen)
        put(store)
        put(store)

    assert asked
    assert not [path for path in asked if path.endswith("-wal")]


@pytest.mark.usefixtures("tables_only")
def test_synced_commits_write_over_zeros_that_stand_ready(tmp_path: Path) -> None:
    with make_store(tmp_path, durability="full") as store:
        wal = store.path.with_name(f"{store.path.name}-wal")
        sizes = set()
        for _ in range(40 * opened.MAKE_READY):
            put(store)
            sizes.add(wal.stat().st_size)

        # Commits as they come until the first zeros, then a step for each part.
        assert len(sizes) < opened.MAKE_READY * 4
        assert max(sizes) > 1024 * 1024


@pytest.mark.usefixtures("tables_only")
def test_zeros_at_the_end_of_the_wal_are_no_messages(tmp_path: Path) -> None:
    with make_store(tmp_path, durability="full") as store:
        for _ in range(3 * opened.MAKE_READY):
            put(store)
        copied = tmp_path / "copied"
        copied.mkdir()
        for name in (store.path.name, f"{store.path.name}-wal"):
            shutil.copy(tmp_path / name, copied / name)

    # As after a power cut: what is in the log is found by reading it.
    assert (copied / f"{store.path.name}-wal").read_bytes()[-100_000:] == bytes(100_000)
    with SQLiteQueueStore(copied / store.path.name) as again:
        assert again.qsize(QUEUE, now=1.0) == 3 * opened.MAKE_READY
        assert again.check().ok


@pytest.mark.usefixtures("tables_only")
def test_zeros_are_written_by_who_comes_to_the_end_and_by_nobody_else(tmp_path: Path) -> None:
    with make_store(tmp_path, durability="full") as store:
        for _ in range(2 * opened.MAKE_READY):
            put(store)
        wal = store.path.with_name(f"{store.path.name}-wal")
        size = wal.stat().st_size

        for _ in range(3):
            another = durability.Wal(wal)
            another.make_ready(opened.FULL_WAL)
            another._ready = 0  # as if the file had been longer or shorter before
            another.make_ready(opened.FULL_WAL)
            another.close()

        assert wal.stat().st_size == size


@pytest.mark.usefixtures("tables_only")
def test_a_relaxed_store_writes_no_zeros(tmp_path: Path) -> None:
    with make_store(tmp_path, durability="relaxed") as store:
        for _ in range(3 * opened.MAKE_READY):
            put(store)

        wal = store.path.with_name(f"{store.path.name}-wal")
        assert wal.read_bytes()[-1000:] != bytes(1000)


@pytest.mark.usefixtures("tables_only")
def test_a_disk_without_room_for_zeros_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with make_store(tmp_path, durability="full") as store:
        monkeypatch.setattr(os, "pwrite", full)
        for _ in range(3 * opened.MAKE_READY):
            put(store)

        assert store.qsize(QUEUE, now=1.0) == 3 * opened.MAKE_READY


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no such call")
def test_the_system_takes_what_it_is_to_write(tmp_path: Path) -> None:
    call = durability._write_behind()
    path = tmp_path / "written"
    path.write_bytes(bytes(100_000))

    assert call is not None
    with path.open("rb") as file:
        assert call(file.fileno(), 0, 0, durability._SYNC_FILE_RANGE_WRITE) == 0
    assert call(-1, 0, 0, durability._SYNC_FILE_RANGE_WRITE) == -1


def test_a_failed_sync_leaves_the_outcome_unknown_and_nothing_is_lost_by_it(
    tmp_path: Path, disk: Disk
) -> None:
    with make_store(tmp_path) as store:
        put(store, b"before")
        disk.fails = True
        with pytest.raises(StoreError, match="outcome is unknown"):
            put(store, b"unknown")
        disk.fails = False

        put(store, b"after")

        assert lease_all(store) == [b"before", b"unknown", b"after"]


def test_after_a_failed_sync_everything_is_checkpointed_before_the_next_answer(
    tmp_path: Path, disk: Disk
) -> None:
    with make_store(tmp_path) as store, make_store(tmp_path) as other_process:
        disk.fails = True
        with pytest.raises(StoreError):
            put(store, b"unknown")
        disk.fails = False

        other_process.lease(LeaseRequest((QUEUE,), 0), now=1.0)

        assert bodies_without_wal(store.path) == [b"unknown"]


def test_nothing_is_stored_while_the_file_cannot_be_repaired(tmp_path: Path, disk: Disk) -> None:
    with make_store(tmp_path, timeout=0.1) as store, make_store(tmp_path, timeout=0.1) as other:
        reader = sqlite3.connect(store.path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM message").fetchall()
        disk.fails = True
        with pytest.raises(StoreError):
            put(store, b"unknown")
        disk.fails = False

        for _ in range(2):
            with pytest.raises(StoreError, match="cannot be repaired while others read"):
                put(other, b"refused")

        reader.close()
        put(other, b"after")
        assert lease_all(store) == [b"unknown", b"after"]


def test_the_last_to_close_leaves_the_mark_of_a_failed_sync(tmp_path: Path, disk: Disk) -> None:
    store = make_store(tmp_path, timeout=0.1)
    reader = sqlite3.connect(store.path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM message").fetchall()
    disk.fails = True
    with pytest.raises(StoreError):
        put(store)
    store.close()
    reader.close()

    assert (tmp_path / "queue.sqlite3-run" / "lock").read_bytes()[0] == 1


def test_who_closes_repairs_what_a_failed_sync_has_left(tmp_path: Path, disk: Disk) -> None:
    store = make_store(tmp_path)
    disk.fails = True
    with pytest.raises(StoreError):
        put(store, b"unknown")
    disk.fails = False
    store.close()

    assert not (tmp_path / "queue.sqlite3-run").exists()
    assert bodies_without_wal(store.path) == [b"unknown"]


def test_a_wal_that_was_deleted_is_noticed_before_anybody_is_answered(tmp_path: Path) -> None:
    with make_store(tmp_path) as store:
        put(store)
        store.path.with_name("queue.sqlite3-wal").unlink()

        with pytest.raises(StoreError):
            put(store)


def test_a_wal_that_was_replaced_by_a_copy_is_noticed_as_well(tmp_path: Path) -> None:
    with make_store(tmp_path) as store:
        put(store)
        wal = store.path.with_name("queue.sqlite3-wal")
        wal.rename(tmp_path / "elsewhere")
        shutil.copy(tmp_path / "elsewhere", wal)

        with pytest.raises(StoreError):
            put(store)


@pytest.mark.usefixtures("tables_only")
def test_a_large_wal_is_started_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "LARGEST_WAL", 100_000)
    monkeypatch.setattr(opened, "LOOK_AT_WAL", 4)
    with make_store(tmp_path, durability="relaxed") as store:
        runner_of(store).exclusively(lambda db: db.execute("PRAGMA wal_autocheckpoint = 0"))

        for _ in range(40):
            put(store, b'"%s"' % (b"x" * 4000))

        assert store.path.with_name("queue.sqlite3-wal").stat().st_size < 400_000


def bodies_without_wal(path: Path) -> list[bytes]:
    """What a power cut leaves when nothing of the -wal was written."""
    copy = path.with_name("copy.sqlite3")
    copy.write_bytes(path.read_bytes())
    db = sqlite3.connect(copy)
    try:
        return [value for (value,) in db.execute("SELECT value FROM message ORDER BY id")]
    finally:
        db.close()


@pytest.mark.parametrize("code", ["SQLITE_CORRUPT", "SQLITE_IOERR"])
def test_a_passing_fault_of_the_disk_is_over_with_the_next_call(tmp_path: Path, code: str) -> None:
    fault = sqlite3.DatabaseError("it looks damaged")
    fault.sqlite_errorcode = getattr(sqlite3, code)

    def fail(tx: Transaction) -> None:
        raise fault

    with make_store(tmp_path) as store:
        before = runner_of(store)._holding.file
        with pytest.raises(StoreError, match="it looks damaged"):
            runner_of(store).write(fail, 1.0)

        put(store)

        assert runner_of(store)._holding.file is not before
        assert lease_all(store) == [b"1"]


@pytest.mark.usefixtures("tables_only")
def test_a_checkpoint_that_fails_after_the_commit_takes_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[opened.OpenFile] = []

    def fail(file: opened.OpenFile, how: str) -> bool:
        tried.append(file)
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(opened, "LARGEST_WAL", 0)
    monkeypatch.setattr(opened, "LOOK_AT_WAL", 1)
    monkeypatch.setattr(opened.OpenFile, "_restart_wal", fail)
    with make_store(tmp_path) as store:
        with meeting(store) as met:
            for number in range(3):
                met.add(f"put {number}", partial(put, store, b"%d" % number))
        put(store, b"alone")

        assert tried
        assert not met.errors
        assert lease_all(store) == [b"0", b"1", b"2", b"alone"]


def test_all_of_a_group_hear_of_a_disk_that_takes_neither_the_sync_nor_the_mark(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(lock: Turnstile, which: int, on: bool) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with make_store(tmp_path) as store:
        with monkeypatch.context() as read_only, meeting(store) as met:
            for number in range(3):
                met.add(f"put {number}", partial(put, store, b"%d" % number))
            read_only.setattr(Turnstile, "mark", fail)
            disk.fails = True
            # Inside: the calls run when the meeting is left, before the disk is well again.
        disk.fails = False

        assert [str(met.errors[f"put {n}"]).count("outcome is unknown") for n in range(3)] == [
            1
        ] * 3
        put(store, b"after")


def test_what_the_journal_shows_is_repaired_first_where_a_sync_has_failed(tmp_path: Path) -> None:
    with make_store(tmp_path) as store:
        put(store, b"unknown")
        file = runner_of(store)._holding.file
        assert file is not None
        file.lock.mark(SYNC_FAILED, True)

        assert "enqueued" in [event.kind for event in store.journal()]

        assert not file.lock.is_marked(SYNC_FAILED)
        assert bodies_without_wal(store.path) == [b"unknown"]
