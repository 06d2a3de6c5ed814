"""diagnostics() tells everything that somebody who helps would ask for, and what to worry about."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localqueue import PersistentQueue, __version__
from localqueue.stores.protocol import LeaseRequest
from localqueue.stores.sqlite.connection import CHECKPOINT_AT
from localqueue.stores.sqlite.operations import diagnostics
from localqueue.stores.sqlite.sql import SCHEMA_VERSION
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.testing import ManualClock
from tests.unit.stores.operations.phrases import START, fill, kill_while_noting, of_everything


@pytest.fixture
def told(tmp_path: Path) -> dict[str, Any]:
    """Of a store with something of everything."""
    path = tmp_path / "queue.sqlite3"
    of_everything(path)
    with SQLiteQueueStore(path, durability="relaxed", timeout=3.0) as store:
        return store.diagnostics()


def test_everything_can_be_written_as_json(told: dict[str, Any]) -> None:
    assert json.loads(json.dumps(told)) == told


def test_versions_and_settings_are_told(told: dict[str, Any]) -> None:
    assert told["versions"]["localqueue"] == __version__
    assert told["versions"]["sqlite"] == sqlite3.sqlite_version
    assert told["schema"] == SCHEMA_VERSION
    assert told["settings"]["durability"] == "relaxed"
    assert told["settings"]["timeout"] == 3.0
    assert told["settings"]["pragmas"]["journal_mode"] == "wal"
    assert told["settings"]["pragmas"]["wal_autocheckpoint"] == CHECKPOINT_AT


def test_the_file_is_told_with_its_sizes(told: dict[str, Any], tmp_path: Path) -> None:
    stat = (tmp_path / "queue.sqlite3").stat()
    file = told["file"]

    assert file["path"] == str(tmp_path / "queue.sqlite3")
    assert (file["device"], file["inode"]) == (stat.st_dev, stat.st_ino)
    assert file["bytes"] == stat.st_size
    assert file["disk_free_bytes"] > 0
    assert told["pages"]["all"] * 4096 >= file["bytes"]
    assert told["pages"]["free_bytes"] == told["pages"]["free"] * 4096


def test_the_daybook_is_told_with_what_stands_in_it(tmp_path: Path, noting: None) -> None:
    path = tmp_path / "queue.sqlite3"
    with SQLiteQueueStore(path) as store, SQLiteQueueStore(path) as other:
        store.queues()
        before = store.diagnostics()["file"]
        for _ in range(5):
            fill(store, 1)
        told = other.diagnostics()
        again = other.diagnostics()["file"]

    assert (before["daybook_bytes"], before["daybook_events"]) == (0, 0)
    assert (told["file"]["daybook_bytes"], told["file"]["daybook_events"]) == (1024 * 1024, 4)
    # Looking at the queues has posted them.
    assert told["queues"]["jobs"]["ready"] == 5
    assert (again["daybook_bytes"], again["daybook_events"]) == (1024 * 1024, 0)


def test_what_a_killed_process_has_noted_is_counted(tmp_path: Path) -> None:
    kill_while_noting(tmp_path / "queue.sqlite3")

    with SQLiteQueueStore(tmp_path / "queue.sqlite3") as store:
        assert store.diagnostics()["file"]["daybook_events"] == 6


def test_queues_the_journal_its_readers_and_the_oldest_lease_are_told(
    told: dict[str, Any],
) -> None:
    assert set(told["queues"]) >= {"jobs", "keys", "log.a"}
    assert told["queues"]["jobs"]["total"] > 50
    journal = told["journal"]
    assert journal["events"] == journal["unfolded"] > 200
    (reader,) = journal["readers"]
    assert (reader["name"], reader["behind"]) == ("billing", journal["events"])
    assert told["oldest_lease"]["queue"] in told["queues"]
    assert told["oldest_lease"]["age_seconds"] > 0


def test_the_engine_tells_its_own_figures(tmp_path: Path) -> None:
    with SQLiteQueueStore(tmp_path / "queue.sqlite3") as store:
        for _ in range(5):
            fill(store, 1)
        engine = store.diagnostics()["engine"]

    assert engine["calls"] >= engine["commits"] >= 5
    assert engine["largest_group"] >= 1


def test_a_new_store_can_be_diagnosed(tmp_path: Path) -> None:
    with SQLiteQueueStore(tmp_path / "queue.sqlite3") as store:
        store.queues()
        told = store.diagnostics()

    assert told["queues"] == {}
    assert told["oldest_lease"] is None
    assert told["journal"]["events"] == 0


def test_ages_are_measured_in_store_time_and_looking_changes_no_lease(tmp_path: Path) -> None:
    """The clock of the queue is not the host's: opening that one would end all leases."""
    clock = ManualClock()
    store = SQLiteQueueStore(tmp_path / "queue.sqlite3")
    queue = PersistentQueue[str]("jobs", store=store, clock=clock)
    queue.put("a")
    held = queue.get_message()

    store.diagnostics()

    assert queue.ack(held)
    store.close()


def test_a_writer_that_is_busy_is_said_and_the_rest_is_told(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    with SQLiteQueueStore(path, timeout=0.2) as store, SQLiteQueueStore(path) as other:
        fill(store, 3)
        fill(other, 1)

        told = other._file.exclusively(lambda _: store.diagnostics())

    assert told["settings"]["pragmas"] is None
    assert any("was busy until the timeout" in warning for warning in told["warnings"])
    assert told["queues"]["jobs"]["ready"] == 4


# --- warnings -------------------------------------------------------------------------------------
def test_a_file_that_is_well_has_no_warnings(told: dict[str, Any]) -> None:
    expected = told["file"]["disk_free_bytes"] < 0.05 * told["file"]["disk_bytes"]

    assert len(told["warnings"]) == expected


def change(*keys: str, to: Any) -> Callable[[dict[str, Any]], None]:
    def apply(told: dict[str, Any]) -> None:
        for key in keys[:-1]:
            told = told[key]
        told[keys[-1]] = to

    return apply


WORRIES: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "a large -wal": (change("file", "wal_bytes", to=2**27), "The -wal has grown to 134,217,728"),
    "little room": (change("file", "disk_free_bytes", to=1000), "The disk is nearly full: 1,000"),
    "a small share": (
        lambda told: told["file"].update(disk_bytes=2**40, disk_free_bytes=2**30),
        "The disk is nearly full",
    ),
    "a network": (
        lambda told: told["file"].update(is_remote=True, file_system="nfs4"),
        r"on a network file system \(nfs4\)",
    ),
    "much that is free": (
        lambda told: told["pages"].update(all=40_000, free=30_000, free_bytes=2**27),
        r"vacuum\(\) gives it back",
    ),
    "another journal": (
        change("settings", "pragmas", "journal_mode", to="delete"),
        "journal_mode=delete",
    ),
    "no syncs": (change("settings", "pragmas", "synchronous", to=0), "synchronous=0"),
}


@pytest.mark.parametrize("worry", WORRIES)
def test_each_worry_is_a_sentence(told: dict[str, Any], worry: str) -> None:
    told["file"].update(disk_bytes=2**40, disk_free_bytes=2**39)
    assert diagnostics._warnings(told) == []
    apply, words = WORRIES[worry]

    apply(told)

    (sentence,) = diagnostics._warnings(told)
    assert sentence.endswith(".")
    assert re.search(words, sentence)


@pytest.mark.parametrize(
    ("version", "locked", "warns"),
    [((3, 40, 1), False, True), ((3, 40, 1), True, False), ((3, 51, 3), False, False)],
)
def test_a_sqlite_that_can_damage_files_is_named_when_no_lock_keeps_processes_apart(
    told: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    version: tuple[int, int, int],
    locked: bool,
    warns: bool,
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    told["file"].update(has_lock=locked, disk_bytes=2**40, disk_free_bytes=2**39)

    assert any("can damage a file" in warning for warning in diagnostics._warnings(told)) is warns


def test_a_wal_that_a_reader_keeps_from_shrinking_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnostics, "LARGE_WAL", 2_000_000)
    with SQLiteQueueStore(tmp_path / "queue.sqlite3", durability="relaxed") as store:
        fill(store, 10)
        reader = sqlite3.connect(tmp_path / "queue.sqlite3", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM message").fetchone()
        for _ in range(3):
            fill(store, 3_000)
            store.lease(LeaseRequest(("jobs",), limit=3_000), now=START)

        (warning,) = [line for line in store.diagnostics()["warnings"] if "-wal" in line]
        reader.close()

    assert "something reads without a pause" in warning
