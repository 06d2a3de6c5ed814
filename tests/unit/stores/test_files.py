"""Whose a file is: new ones are made, and what is not ours is refused and stays as it is."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localqueue.errors import (
    LocalQueueError,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreUnsupported,
)
from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite.sql import APPLICATION_ID, SCHEMA_VERSION
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.unit.stores.phrases import CALLS, contents, filled, picture

Make = Callable[[Path], object]


def sqlite_file(path: Path, *statements: str) -> None:
    """A file of somebody who uses SQLite too."""
    db = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        db.execute(statement)
    db.close()


def original(version: int, journal_mode: str = "delete") -> Make:
    tables = (
        "queue_messages (queue TEXT, id TEXT, record_json TEXT, PRIMARY KEY (queue, id))",
        "queue_sequences (queue TEXT PRIMARY KEY, next INTEGER)",
        "queue_worker_stats (queue TEXT, worker_id TEXT)",
        "queue_worker_heartbeats (queue TEXT, worker_id TEXT)",
        "queue_dedupe_keys (queue TEXT, dedupe_key TEXT)",
    )
    return lambda path: sqlite_file(
        path,
        f"PRAGMA journal_mode = {journal_mode}",
        *(f"CREATE TABLE {table}" for table in tables),
        "INSERT INTO queue_messages VALUES ('jobs', '1', '{}')",
        f"PRAGMA user_version = {version}",
    )


def future(path: Path) -> None:
    filled(path, "a")
    sqlite_file(path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")


def cut(size: int) -> Make:
    def make(path: Path) -> None:
        whole = filled(path, *range(100)).read_bytes()
        assert size < len(whole)
        path.write_bytes(whole[:size])

    return make


REFUSED: dict[str, tuple[Make, type[StoreError], str]] = {
    "of a future version": (
        future,
        StoreUnsupported,
        f"unsupported SQLite queue schema version {SCHEMA_VERSION + 1}.*Upgrade",
    ),
    "of another application": (
        lambda path: sqlite_file(path, "CREATE TABLE recipe (name)"),
        StoreUnsupported,
        "another application",
    ),
    "of another application, in WAL mode": (
        lambda path: sqlite_file(path, "PRAGMA journal_mode = wal", "CREATE TABLE recipe (name)"),
        StoreUnsupported,
        "another application",
    ),
    "of another application that says so": (
        lambda path: sqlite_file(
            path, "PRAGMA application_id = 42", "CREATE TABLE message (id)", "PRAGMA user_version=2"
        ),
        StoreUnsupported,
        "another application",
    ),
    "of another application, without a table": (
        lambda path: sqlite_file(path, "PRAGMA application_id = 42"),
        StoreUnsupported,
        "another application",
    ),
    "of another application, with a version only": (
        lambda path: sqlite_file(path, "PRAGMA user_version = 7"),
        StoreUnsupported,
        "another application",
    ),
    "of the original, version 1": (original(1), StoreUnsupported, "version 1.*drain it"),
    "of the original, version 2": (original(2), StoreUnsupported, "version 2.*drain it"),
    "of the original, version 3": (original(3), StoreUnsupported, "version 3.*drain it"),
    "of the original, in WAL mode": (original(3, "wal"), StoreUnsupported, "version 3.*drain it"),
    "garbage": (
        lambda path: path.write_bytes(bytes(range(256)) * 64),
        StoreCorrupt,
        "not a SQLite database",
    ),
    "garbage behind a header": (
        lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 64),
        StoreCorrupt,
        "not a SQLite database",
    ),
    "zeros": (lambda path: path.write_bytes(bytes(8192)), StoreCorrupt, "not a SQLite database"),
    "text": (
        lambda path: path.write_text("Dear diary, today I learnt about queues.\n" * 50),
        StoreCorrupt,
        "not a SQLite database",
    ),
    "a short text": (lambda path: path.write_text("hi"), StoreCorrupt, "not a SQLite database"),
    "a single byte": (lambda path: path.write_text("x"), StoreCorrupt, "not a SQLite database"),
    "cut off in its header": (cut(80), StoreCorrupt, "damaged"),
    "cut off after its first page": (cut(4096), StoreCorrupt, "damaged"),
    "cut off in the middle": (cut(21_000), StoreCorrupt, "damaged"),
    "a directory": (lambda path: path.mkdir(), StoreUnsupported, "is a directory"),
    "a pipe": (lambda path: os.mkfifo(path), StoreUnsupported, "no ordinary file"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_file_that_is_not_ours_is_refused_with_a_sentence_and_stays_as_it_is(
    tmp_path: Path, what: str
) -> None:
    make, error, sentence = REFUSED[what]
    path = tmp_path / "file"
    make(path)
    before = picture(tmp_path)

    for call in CALLS.values():
        with (
            PersistentQueue[Any]("jobs", store_path=path) as queue,
            pytest.raises(error, match=sentence) as raised,
        ):
            call(queue)
        assert str(path) in str(raised.value)
        assert picture(tmp_path) == before


def test_a_file_that_somebody_else_has_open_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "theirs.sqlite3"
    theirs = sqlite3.connect(path, isolation_level=None)
    theirs.execute("PRAGMA journal_mode = wal")
    theirs.execute("CREATE TABLE recipe (name)")
    theirs.execute("PRAGMA wal_checkpoint")
    theirs.execute("INSERT INTO recipe VALUES ('soup')")
    before = picture(tmp_path)

    with pytest.raises(StoreUnsupported, match="another application"):
        SQLiteQueueStore(path).queues()

    assert picture(tmp_path) == before
    theirs.close()


@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
def test_a_file_that_somebody_else_holds_locked_is_refused_without_waiting(
    tmp_path: Path, journal_mode: str
) -> None:
    path = tmp_path / "theirs.sqlite3"
    sqlite_file(path, f"PRAGMA journal_mode = {journal_mode}", "CREATE TABLE recipe (name)")
    theirs = sqlite3.connect(path, isolation_level=None)
    theirs.execute("BEGIN EXCLUSIVE")

    with pytest.raises(StoreUnsupported, match="another application"):
        SQLiteQueueStore(path, timeout=0.0).queues()

    theirs.close()


def test_what_is_only_in_the_wal_is_recognised_too(tmp_path: Path) -> None:
    """As after a kill: SQLite has not written the file itself yet."""
    living, path = tmp_path / "living.sqlite3", tmp_path / "killed" / "theirs.sqlite3"
    theirs = sqlite3.connect(living, isolation_level=None)
    theirs.execute("PRAGMA journal_mode = wal")
    theirs.execute("CREATE TABLE recipe (name)")
    path.parent.mkdir()
    shutil.copy(living, path)
    shutil.copy(f"{living}-wal", f"{path}-wal")
    theirs.close()
    before = picture(path.parent)

    with pytest.raises(StoreUnsupported, match="another application"):
        SQLiteQueueStore(path).queues()

    after = picture(path.parent)
    assert {name: after[name] for name in before} == before


def test_what_a_killed_process_left_in_the_wal_is_all_there(tmp_path: Path) -> None:
    living, path = tmp_path / "living.sqlite3", tmp_path / "killed.sqlite3"
    store = SQLiteQueueStore(living)
    PersistentQueue[str]("jobs", store=store).put_many(["a", "b"])
    shutil.copy(living, path)
    shutil.copy(f"{living}-wal", f"{path}-wal")
    store.close()

    assert contents(path) == ["a", "b"]


def test_a_file_and_the_folders_above_it_are_made_at_the_first_call(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "queue.sqlite3"
    store = SQLiteQueueStore(path)
    assert not (tmp_path / "a").exists()

    assert store.queues() == []

    assert path.is_file()
    store.close()


def test_an_empty_file_is_taken_as_new(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    path.touch(mode=0o640)

    filled(path, "a")

    assert contents(path) == ["a"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_files_are_readable_for_their_owner_only(tmp_path: Path) -> None:
    store = SQLiteQueueStore(tmp_path / "queue.sqlite3")
    before = os.umask(0)
    try:
        PersistentQueue[str]("jobs", store=store).put("a")
    finally:
        os.umask(before)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    store.close()
    assert modes.pop("queue.sqlite3-run") == 0o700
    assert modes.pop("queue.sqlite3") == 0o600
    assert set(modes.values()) == {0o600}


def test_a_file_says_whose_it_is_and_which_version(tmp_path: Path) -> None:
    path = filled(tmp_path / "queue.sqlite3", "a")

    db = sqlite3.connect(path)
    found = [
        db.execute(f"PRAGMA {pragma}").fetchone()[0]
        for pragma in ("application_id", "user_version")
    ]
    db.close()

    assert found == [APPLICATION_ID, SCHEMA_VERSION]


def test_after_closing_one_file_is_left(tmp_path: Path) -> None:
    filled(tmp_path / "queue.sqlite3", "a")

    assert [path.name for path in tmp_path.iterdir()] == ["queue.sqlite3"]


@pytest.mark.parametrize("name", ["with space", "ümläut 漢字", "per%20cent", "a?b=c#d", "quote'\""])
def test_any_name_of_a_file_will_do(tmp_path: Path, name: str) -> None:
    filled(tmp_path / name, "a")

    assert contents(tmp_path / name) == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_where_a_folder_should_be_is_an_error_of_the_tree(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    with pytest.raises(StoreReadOnly, match="cannot be made or opened"):
        SQLiteQueueStore(tmp_path / "file" / "queue.sqlite3").queues()

    assert (tmp_path / "file").read_text() == "x"


def test_an_error_of_the_operating_system_is_one_of_the_tree_with_its_cause(
    tmp_path: Path,
) -> None:
    path = tmp_path / ("x" * 300)

    with pytest.raises(StoreReadOnly) as raised:
        SQLiteQueueStore(path).queues()

    assert isinstance(raised.value, LocalQueueError)
    assert isinstance(raised.value.__cause__, OSError)
    assert raised.value.__cause__.errno == errno.ENAMETOOLONG
