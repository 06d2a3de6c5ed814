"""Files and folders that may not be written."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from localqueue.errors import StoreError
from localqueue.queue import PersistentQueue
from tests.unit.stores.phrases import contents, filled, picture

NOBODY = 65534


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


AS_NOBODY = f"""
import os, sys
from localqueue import LocalQueueError, PersistentQueue

# Everything is loaded while there are rights to read it.
with PersistentQueue("warm", store="memory://") as warm:
    warm.put("a")
    warm.qsize()
if os.getuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
for call in (lambda q: q.put("b"), lambda q: q.qsize()):
    with PersistentQueue("jobs", store_path=sys.argv[1]) as queue:
        try:
            call(queue)
        except LocalQueueError as error:
            print(type(error).__name__)
"""


def as_somebody_without_rights(path: Path) -> list[str]:
    """Which errors a user without rights gets from put and qsize."""
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def belongs_to_nobody(*paths: Path) -> None:
    if os.getuid() == 0:
        for path in paths:
            os.chown(path, NOBODY, NOBODY)


@pytest.mark.parametrize("mode", [0o444, 0o000])
def test_a_file_that_may_not_be_written_is_an_error_and_gets_no_company(
    open_folder: Path, mode: int
) -> None:
    path = filled(open_folder / "queue.sqlite3", "a")
    belongs_to_nobody(open_folder, path)
    path.chmod(mode)
    listing = sorted(open_folder.iterdir())

    assert as_somebody_without_rights(path) == ["StoreReadOnly"] * 2

    assert sorted(open_folder.iterdir()) == listing
    path.chmod(0o600)
    assert contents(path) == ["a"]


def test_a_folder_that_may_not_be_written_is_an_error(open_folder: Path) -> None:
    path = filled(open_folder / "queue.sqlite3", "a")
    path.chmod(0o666)
    belongs_to_nobody(path)
    open_folder.chmod(0o555)
    before = picture(open_folder)

    assert as_somebody_without_rights(path) == ["StoreReadOnly"] * 2
    assert as_somebody_without_rights(open_folder / "new.sqlite3") == ["StoreReadOnly"] * 2

    assert picture(open_folder) == before
    open_folder.chmod(0o755)
    assert contents(path) == ["a"]


def test_a_folder_that_may_not_be_entered_is_an_error(open_folder: Path) -> None:
    inner = open_folder / "inner"
    inner.mkdir()
    path = filled(inner / "queue.sqlite3", "a")
    inner.chmod(0o000)

    try:
        assert as_somebody_without_rights(path) == ["StoreReadOnly"] * 2
    finally:
        inner.chmod(0o755)

    assert contents(path) == ["a"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes files for others")
def test_a_daybook_that_root_makes_is_the_owners_of_its_file(
    open_folder: Path, noting: None
) -> None:
    path = filled(open_folder / "queue.sqlite3", "a")
    belongs_to_nobody(open_folder, path)

    with PersistentQueue[str]("jobs", store_path=path) as queue:
        queue.put("by root")
        queue.put("noted by root")
        for end in ("-wal", "-daybook"):
            found = path.with_name(f"{path.name}{end}").stat()
            assert (found.st_uid, found.st_gid) == (NOBODY, NOBODY), end


def test_a_link_in_the_place_of_the_folder_of_locks_is_not_followed(tmp_path: Path) -> None:
    """Whoever put it there would have files made, and later removed, where it leads."""
    path, elsewhere = tmp_path / "queue.sqlite3", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    path.with_name(f"{path.name}-run").symlink_to(elsewhere)

    with pytest.raises(StoreError, match="is a link"):
        PersistentQueue[str]("jobs", store_path=path).put("a")

    assert [one.name for one in elsewhere.iterdir()] == ["precious"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_a_daybook_may_be_read_by_those_who_may_read_the_file(
    tmp_path: Path, noting: None, mode: int
) -> None:
    """As its -wal."""
    path = filled(tmp_path / "queue.sqlite3", "a")
    path.chmod(mode)

    with PersistentQueue[str]("jobs", store_path=path) as queue:
        for value in "bc":
            queue.put(value)
        for end in ("-wal", "-daybook"):
            found = path.with_name(f"{path.name}{end}").stat()
            assert stat.S_IMODE(found.st_mode) == mode, end
