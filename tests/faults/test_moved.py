"""A file that is deleted, replaced, restored or moved while another process puts into it.

Proven: no put that began afterwards is answered; each is refused, with StoreMoved in the end. What
is in the place of the file then is left alone, and the file that was moved has every put that was
answered. (One call after the other: ``tests/unit/stores/test_moved_files.py``.)
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from localqueue.errors import StoreMoved
from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite.daybook.file import DaybookFile
from tests.faults.nursery import Child
from tests.faults.soundness import check_file

ENDS = ("", "-wal", "-shm", "-daybook")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    return folder / "queue.sqlite3"


def fill(path: Path, *values: Any) -> None:
    with PersistentQueue[Any]("jobs", store_path=path) as queue:
        queue.put_many(values)


def contents(path: Path) -> list[Any]:
    with PersistentQueue[Any]("jobs", store_path=path) as queue:
        values = [message.value for message in queue.peek(100_000)]
    check_file(path)
    return values


class Told(NamedTuple):
    """What the process said of its puts."""

    stored: list[Any]
    swallowed: list[Any]
    refused: list[str]


def note_and_be_killed(path: Path, *values: Any) -> None:
    """Leave the file as a killed process does: the last values are in its daybook alone."""
    with Child("movers:note", str(path), list(values)) as process:
        assert process.hear() == len(values)
        process.kill()
    assert beside(path, "-daybook").exists()


def beside(path: Path, end: str) -> Path:
    return path.with_name(f"{path.name}{end}")


def put_while(path: Path, act: Callable[[], None], *given: Any) -> Told:
    """Let a process put, do something to its file, and hear what it says until it gives up."""
    with Child("movers:keep_putting", str(path), *given) as process:
        said = [process.hear() for _ in range(30)]
        act()
        done = time.monotonic()
        said += process.hear_all()
        process.wait()
    stored = [(began, what) for how, began, what in said if how == "stored"]
    return Told(
        [what for _, what in stored],
        [what for began, what in stored if began > done],
        [how for how, began, _ in said if how != "stored" and began > done],
    )


def delete(path: Path) -> None:
    for end in ENDS:
        beside(path, end).unlink(missing_ok=True)


DURABILITIES = pytest.mark.parametrize("durability", ["full", "relaxed"])


def check_refused(told: Told) -> None:
    assert told.stored
    assert told.swallowed == []
    # One that was under way with others is told that its outcome is unknown.
    assert {"StoreMoved"} <= set(told.refused) <= {"StoreMoved", "StoreError"}


@DURABILITIES
def test_a_file_that_is_deleted_under_a_process_swallows_nothing(
    path: Path, durability: str
) -> None:
    told = put_while(path, lambda: delete(path), durability, None)

    check_refused(told)
    assert not path.exists()


@DURABILITIES
def test_a_file_that_is_restored_under_a_process_is_left_as_the_backup_was(
    path: Path, durability: str, tmp_path: Path
) -> None:
    fill(path, "in the backup")
    backup = shutil.copy(path, tmp_path / "backup.sqlite3")

    def restore() -> None:
        delete(path)
        shutil.copy(backup, path)

    told = put_while(path, restore, durability, None)

    check_refused(told)
    assert contents(path) == ["in the backup"]


@DURABILITIES
def test_a_file_that_is_moved_away_takes_every_answered_put_along(
    path: Path, durability: str, tmp_path: Path
) -> None:
    away = tmp_path / "away" / path.name
    away.parent.mkdir()

    def move() -> None:
        for end in ENDS:
            beside(path, end).rename(beside(away, end))

    told = put_while(path, move, durability, None)

    check_refused(told)
    assert not path.exists()
    moved = contents(away)
    assert [value for value in told.stored if value not in moved] == []


def test_what_a_killed_process_has_noted_goes_where_its_files_are_moved(
    path: Path, tmp_path: Path
) -> None:
    note_and_be_killed(path, *range(30))
    away = tmp_path / "away.sqlite3"
    for end in ("", "-wal", "-daybook"):
        beside(path, end).rename(beside(away, end))

    assert contents(away) == list(range(30))
    assert not beside(away, "-daybook").exists()


def test_a_daybook_of_another_database_is_kept_aside_and_changes_nothing(
    path: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.sqlite3"
    note_and_be_killed(other, "of the other", "noted by the other")
    noted = beside(other, "-daybook").read_bytes()
    fill(path, "mine")
    beside(other, "-daybook").rename(beside(path, "-daybook"))

    assert contents(path) == ["mine"]
    [kept] = path.parent.glob(f"{path.name}-daybook-*")
    assert kept.read_bytes() == noted


def test_no_new_file_is_made_beside_what_a_file_that_is_gone_has_noted(
    path: Path, tmp_path: Path
) -> None:
    note_and_be_killed(path, *range(30))
    away = tmp_path / "away.sqlite3"
    for end in ("", "-wal"):
        beside(path, end).rename(beside(away, end))

    with pytest.raises(StoreMoved):
        fill(path, "new")

    for end in ("", "-wal"):
        beside(away, end).rename(beside(path, end))
    assert contents(path) == list(range(30))


def test_a_backup_that_is_restored_beside_an_old_daybook_is_left_as_it_was(
    path: Path, tmp_path: Path
) -> None:
    fill(path, "in the backup")
    backup = shutil.copy(path, tmp_path / "backup.sqlite3")
    note_and_be_killed(path, *range(30))
    for end in ("-wal", "-shm"):
        beside(path, end).unlink()
    shutil.copy(backup, path)

    assert contents(path) == ["in the backup"]
    fill(path, "afterwards")
    assert contents(path) == ["in the backup", "afterwards"]


def test_a_daybook_that_is_taken_for_ones_own_whoevers_it_is_is_caught(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.sqlite3"
    note_and_be_killed(other, "of the other", "noted by the other")
    fill(path, "mine")
    beside(other, "-daybook").rename(beside(path, "-daybook"))
    belongs_to = DaybookFile.belongs_to
    monkeypatch.setattr(
        DaybookFile, "belongs_to", lambda self, bits: belongs_to(self, bits) or True
    )

    assert contents(path) != ["mine"]


@DURABILITIES
def test_puts_that_wait_for_the_lock_while_their_file_is_deleted_are_refused(
    path: Path, durability: str
) -> None:
    fill(path, "before")
    with (
        Child("movers:put_behind_a_holder", str(path), durability) as process,
        Child("holders:stop_in_transaction", str(path)) as holder,
    ):
        assert (process.hear(), holder.hear()) == ("open", "open")
        holder.tell()
        holder.wait_until_stopped()
        process.tell()
        assert process.hear() == "waiting"
        delete(path)
        process.tell()
        assert process.hear() == "both waiting"
        holder.kill()
        fates = process.hear()

    assert "stored" not in fates
    assert not path.exists()


def test_a_store_that_does_not_look_at_its_file_is_caught(path: Path) -> None:
    told = put_while(path, lambda: delete(path), "relaxed", "DoesNotLook")

    assert told.swallowed, "puts were answered that nobody will ever find"


def test_a_deleted_wal_is_seen_when_it_is_synced(path: Path) -> None:
    told = put_while(path, lambda: delete(path), "full", "DoesNotLook")

    assert told.swallowed == []
    assert told.refused
