"""Files that are deleted, replaced, moved or restored while they are open, and full disks."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localqueue.errors import (
    StoreFull,
    StoreMoved,
)
from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite import connection
from localqueue.stores.sqlite.group_commit import Call, GroupCommit
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.unit.stores.engine.phrases import meeting
from tests.unit.stores.phrases import CALLS, Queue, contents, delete, filled, picture


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder / "queue.sqlite3"


@pytest.fixture
def open_queue(path: Path) -> Iterator[Queue]:
    """A queue whose file is open, with one message."""
    store = SQLiteQueueStore(path)
    queue: Queue = PersistentQueue("jobs", store=store)
    queue.put("before")
    yield queue
    store.close()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_file_that_was_deleted_takes_nothing_and_is_not_made_again(
    open_queue: Queue, path: Path, call: Callable[[Queue], object]
) -> None:
    delete(path)

    for _ in range(2):
        with pytest.raises(StoreMoved, match="was deleted while it was open"):
            call(open_queue)

    assert not path.exists()
    open_queue.store.close()
    assert list(path.parent.iterdir()) == []


def test_a_file_that_is_deleted_in_the_middle_of_a_call_was_deleted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = connection.connect_to_read

    def connect_too_late(path: Path, **options: Any) -> sqlite3.Connection:
        delete(path)
        return connect(path, **options)

    store = SQLiteQueueStore(path)
    store.purge("jobs", now=0.0)
    monkeypatch.setattr(connection, "connect_to_read", connect_too_late)

    with pytest.raises(StoreMoved, match="was deleted while it was open"):
        store.queues()

    store.close()
    assert list(path.parent.iterdir()) == []


def test_who_begins_after_its_file_was_deleted_is_refused_with_the_leader_that_takes_it_along(
    open_queue: Queue, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_queue.store
    assert isinstance(store, SQLiteQueueStore)
    take = GroupCommit._take

    def deleted_before(group: GroupCommit) -> list[Call[Any]]:
        calls = take(group)
        delete(path)
        return calls

    with meeting(store) as met:
        for name in ("leader", "other"):
            met.add(name, lambda: open_queue.put("after"))
        monkeypatch.setattr(GroupCommit, "_take", deleted_before)

    assert {type(error) for error in met.errors.values()} == {StoreMoved}
    assert met.answers == {}


def test_a_wal_whose_file_is_gone_is_not_thrown_away(path: Path) -> None:
    code = f"""
import os
from localqueue import PersistentQueue
PersistentQueue("jobs", store_path={str(path)!r}).put("important")
os._exit(9)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    aside = path.with_name("aside.sqlite3")
    path.rename(aside)

    with pytest.raises(StoreMoved, match="may hold its newest messages"):
        PersistentQueue[Any]("jobs", store_path=path).put("other")

    assert not path.exists()
    aside.rename(path)
    with PersistentQueue[Any]("jobs", store_path=path) as queue:
        assert queue.get_nowait() == "important"


def test_a_daybook_whose_file_is_gone_is_not_taken_for_that_of_a_new_one(path: Path) -> None:
    code = f"""
import os
from localqueue import PersistentQueue
from localqueue.stores.sqlite.daybook import book
book.WARM_UP = 0
queue = PersistentQueue("jobs", store_path={str(path)!r})
queue.put("posted")
queue.put("noted")
os._exit(9)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    aside = path.with_name("aside.sqlite3")
    for ending in ("", "-wal"):
        path.with_name(f"{path.name}{ending}").rename(f"{aside}{ending}")

    with pytest.raises(StoreMoved, match="-daybook is there and may hold its newest messages"):
        PersistentQueue[Any]("jobs", store_path=path).put("other")

    assert not path.exists()
    for ending in ("", "-wal"):
        Path(f"{aside}{ending}").rename(f"{path}{ending}")
    assert contents(path) == ["posted", "noted"]


def test_a_daybook_in_which_nothing_was_noted_keeps_nobody_from_beginning_anew(
    path: Path,
) -> None:
    Path(f"{path}-daybook").write_bytes(bytes(1024 * 1024))

    filled(path, "new")

    assert contents(path) == ["new"]


def test_a_folder_that_was_deleted_is_not_made_again(open_queue: Queue, path: Path) -> None:
    shutil.rmtree(path.parent)

    with pytest.raises(StoreMoved):
        open_queue.put("lost")

    assert not path.parent.exists()


def test_a_folder_that_became_a_file_is_an_error_of_the_tree(open_queue: Queue, path: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.write_text("x")

    with pytest.raises(StoreMoved, match="cannot be reached any more"):
        open_queue.put("lost")


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_file_that_was_replaced_is_not_written_by_those_who_had_the_old_one(
    open_queue: Queue, path: Path, call: Callable[[Queue], object]
) -> None:
    other = filled(path.parent / "other.sqlite3", "of another queue")
    delete(path)
    other.rename(path)
    before = picture(path.parent)

    with pytest.raises(StoreMoved, match="replaced by another file"):
        call(open_queue)
    open_queue.store.close()

    assert picture(path.parent) == before
    assert contents(path) == ["of another queue"]


def test_a_file_that_was_moved_away_and_back_goes_on_with_everything(
    open_queue: Queue, path: Path
) -> None:
    away = path.with_name("away.sqlite3")
    path.rename(away)
    with pytest.raises(StoreMoved):
        open_queue.put("refused")

    away.rename(path)
    open_queue.put("after")
    open_queue.store.close()

    assert contents(path) == ["before", "after"]


def test_a_file_restored_from_a_backup_is_there_for_who_opens_it_anew(
    open_queue: Queue, path: Path, tmp_path: Path
) -> None:
    open_queue.store.close()
    backup = shutil.copy(path, tmp_path / "backup.sqlite3")
    store = SQLiteQueueStore(path)
    living: Queue = PersistentQueue("jobs", store=store)
    living.put("after the backup")

    delete(path)
    shutil.copy(backup, path)

    with pytest.raises(StoreMoved):
        living.put("to the old one")
    store.close()
    assert contents(path) == ["before"]


def test_a_new_object_makes_a_new_file_where_one_was_deleted(open_queue: Queue, path: Path) -> None:
    delete(path)

    filled(path, "new")

    with pytest.raises(StoreMoved):
        open_queue.put("old")
    assert contents(path) == ["new"]


def test_a_full_disk_is_an_error_and_what_was_stored_is_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = filled(tmp_path / "queue.sqlite3", "stored")
    connect = connection.connect

    def connect_to_a_small_disk(*given: Any, **options: Any) -> sqlite3.Connection:
        db = connect(*given, **options)
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages + 10}")
        return db

    monkeypatch.setattr(connection, "connect", connect_to_a_small_disk)
    store = SQLiteQueueStore(path)
    queue: Queue = PersistentQueue("jobs", store=store)

    with pytest.raises(StoreFull, match="what was stored is intact") as raised:
        queue.put("x" * 1_000_000)

    assert isinstance(raised.value.__cause__, sqlite3.Error)
    assert queue.stats().total == 1
    assert queue.get(block=False) == "stored"
    queue.task_done()
    store.close()
