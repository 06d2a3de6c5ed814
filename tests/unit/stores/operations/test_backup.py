"""A backup is one consistent state, whole and verified, or it is not there."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localqueue.errors import (
    InvalidArgument,
    JournalForeign,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreMoved,
    WrongType,
)
from localqueue.message import Receipt
from localqueue.stores.protocol import LeaseRequest, Put
from localqueue.stores.sqlite.operations import backup as backup_module
from localqueue.stores.sqlite.operations.daybook import count_unposted
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.unit.stores.operations.phrases import (
    LATER,
    START,
    everything,
    fill,
    kill_while_noting,
    of_everything,
    on_a_small_disk,
    raw,
    receipt,
    value,
)
from tests.unit.stores.phrases import delete, picture, run_program


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteQueueStore]:
    folder = tmp_path / "store"
    folder.mkdir()
    with SQLiteQueueStore(folder / "queue.sqlite3", durability="relaxed") as opened:
        opened.queues()
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where copies go: nothing else is in it."""
    made = tmp_path / "backups"
    made.mkdir()
    return made


# --- what is copied -------------------------------------------------------------------------------
def test_a_copy_holds_everything_and_says_so(tmp_path: Path, folder: Path) -> None:
    of_everything(tmp_path / "queue.sqlite3")
    with SQLiteQueueStore(tmp_path / "queue.sqlite3") as store:
        report = store.backup(folder / "copy.sqlite3")
        end = store.journal_end()
        records = store.scan_records("result", now=START)
        held = everything(store)

    with SQLiteQueueStore(folder / "copy.sqlite3") as copy:
        assert copy.check().ok
        assert copy.scan_records("result", now=START) == records
        assert everything(copy) == held
    assert report.path == str(folder / "copy.sqlite3")
    assert (report.queues, report.position) == (8, end)
    assert report.messages > 100
    assert report.as_dict()["events"] == report.events > 200


def test_what_others_put_while_it_is_made_is_not_in_it_and_does_not_start_it_anew(
    store: SQLiteQueueStore, folder: Path
) -> None:
    fill(store, 8_000)
    told: list[tuple[int, int]] = []

    def put_more(done: int, total: int) -> None:
        told.append((done, total))
        assert len(told) < 50, "it starts again and again"
        fill(store, 50)

    report = store.backup(folder / "copy.sqlite3", on_progress=put_more)

    assert report.messages == 8_000
    assert len(told) > 2
    assert told == sorted(set(told))
    assert told[-1][0] == told[-1][1] == report.bytes // 4096
    assert store.stats("jobs", now=START).total == 8_000 + 50 * len(told)


def test_another_process_goes_on_writing_and_every_copy_has_whole_batches(
    store: SQLiteQueueStore, folder: Path
) -> None:
    fill(store, 3_000)
    program = """
        import sys
        from localqueue.stores.protocol import Put
        from localqueue.stores.sqlite.store import SQLiteQueueStore
        store = SQLiteQueueStore(sys.argv[1], durability="relaxed")
        batch = [Put("pairs", b"1"), Put("pairs", b"2" * 5_000)]
        store.enqueue_many(batch, now=1.0)
        print("ready", flush=True)
        while True:
            store.enqueue_many(batch, now=1.0)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(store.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        reports = [store.backup(folder / f"{n}.sqlite3") for n in range(4)]
        writer.kill()

    sizes = [report.messages - 3_000 for report in reports]
    assert sizes == sorted(set(sizes))
    assert [size % 2 for size in sizes] == [0] * 4
    for report in reports:
        with SQLiteQueueStore(report.path) as copy:
            assert copy.check().ok


def test_what_was_noted_before_the_call_is_in_the_copy(
    tmp_path: Path, folder: Path, noting: None
) -> None:
    path = tmp_path / "queue.sqlite3"
    with SQLiteQueueStore(path) as store, SQLiteQueueStore(path) as other:
        ids = [fill(store, 1)[0] for _ in range(5)]
        (leased,) = store.lease(LeaseRequest(("jobs",)), now=START)
        store.ack_many([receipt(leased)], now=START)
        noted = count_unposted(path, 1.0)

        report = other.backup(folder / "copy")

        assert noted == 4 + 2
        assert (report.messages, report.position) == (4, store.journal_end())
    with SQLiteQueueStore(folder / "copy") as copy:
        assert [message.id for message in copy.peek("jobs", 9, now=LATER)] == ids[1:]
        assert copy.check().ok


def test_what_a_killed_process_has_noted_is_in_the_copy(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    ids = kill_while_noting(path)

    with SQLiteQueueStore(path) as store:
        store.backup(folder / "copy")

    with SQLiteQueueStore(folder / "copy") as copy:
        assert [message.id for message in copy.peek("jobs", 9, now=LATER)] == ids


def test_the_copy_is_one_file_for_its_owner_only(store: SQLiteQueueStore, folder: Path) -> None:
    fill(store, 10)
    before = os.umask(0)
    try:
        store.backup(folder / "copy.sqlite3")
    finally:
        os.umask(before)

    (copy,) = folder.iterdir()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert value(copy, "PRAGMA journal_mode") == "delete"


# --- what is refused ------------------------------------------------------------------------------
def into(what: str) -> Callable[[Path, Path], Path]:
    return lambda store, folder: store.parent / f"{store.name}{what}"


def a_link(store: Path, folder: Path) -> Path:
    (folder / "link").symlink_to(store)
    return folder / "link"


def a_hard_link(store: Path, folder: Path) -> Path:
    (folder / "hard").hardlink_to(store)
    return folder / "hard"


OWN: dict[str, Callable[[Path, Path], Path]] = {
    "its own path": into(""),
    "its -wal": into("-wal"),
    "its -shm": into("-shm"),
    "its daybook": into("-daybook"),
    "the folder beside it": into("-run"),
    "a file in the folder beside it": into("-run/lock"),
    "a link to it": a_link,
    "another name of it": a_hard_link,
}


@pytest.mark.parametrize("which", OWN)
def test_the_store_itself_is_never_written_over(
    store: SQLiteQueueStore, folder: Path, which: str
) -> None:
    fill(store, 10)
    target = OWN[which](store.path, folder)

    with pytest.raises(InvalidArgument, match="belongs to the store itself"):
        store.backup(target, overwrite=True)

    assert store.check().ok
    assert store.stats("jobs", now=START).total == 10


def test_a_file_that_exists_is_replaced_only_when_told(
    store: SQLiteQueueStore, folder: Path
) -> None:
    fill(store, 10)
    (folder / "copy").write_text("precious")

    with pytest.raises(InvalidArgument, match="exists already; say overwrite=True"):
        store.backup(folder / "copy")
    assert (folder / "copy").read_text() == "precious"

    assert store.backup(folder / "copy", overwrite=True).messages == 10
    assert [path.name for path in folder.iterdir()] == ["copy"]


def test_a_file_that_appears_while_the_copy_is_made_is_not_replaced(
    store: SQLiteQueueStore, folder: Path
) -> None:
    fill(store, 10)

    with pytest.raises(InvalidArgument, match="made meanwhile"):
        store.backup(
            folder / "copy", on_progress=lambda *_: (folder / "copy").write_text("precious")
        )

    assert {path.name: path.read_text() for path in folder.iterdir()} == {"copy": "precious"}


@pytest.mark.parametrize("ending", ["-wal", "-shm", "-journal", "-daybook"])
def test_a_path_that_a_store_uses_is_refused(
    store: SQLiteQueueStore, folder: Path, ending: str
) -> None:
    """SQLite would take an old -wal for a part of the new file; a daybook would be lost."""
    (folder / f"copy{ending}").write_text("x")

    with pytest.raises(StoreBusy, match="a store is open under that path"):
        store.backup(folder / "copy", overwrite=True)


def test_folders_and_what_is_no_path_are_refused(store: SQLiteQueueStore, folder: Path) -> None:
    with pytest.raises(InvalidArgument, match="no such folder"):
        store.backup(folder / "missing" / "copy")
    with pytest.raises(InvalidArgument, match="is a directory"):
        store.backup(folder, overwrite=True)
    with pytest.raises(InvalidArgument, match="NUL"):
        store.backup("a\0b")
    with pytest.raises(WrongType, match="not int"):
        store.backup(3)  # type: ignore[arg-type]

    assert list(folder.iterdir()) == []


def test_a_closed_store_makes_no_copy(store: SQLiteQueueStore, folder: Path) -> None:
    store.close()

    with pytest.raises(StoreClosed):
        store.backup(folder / "copy")


# --- nothing is left ------------------------------------------------------------------------------
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_copy_is_removed(
    store: SQLiteQueueStore, folder: Path, error: type[BaseException]
) -> None:
    fill(store, 8_000)

    def interrupt(done: int, total: int) -> None:
        assert done < total
        assert len(list(folder.iterdir())) == 1
        raise error

    with pytest.raises(error):
        store.backup(folder / "copy.sqlite3", on_progress=interrupt)

    assert list(folder.iterdir()) == []
    assert store.backup(folder / "copy.sqlite3").messages == 8_000


def test_a_damaged_file_has_no_copy(tmp_path: Path, folder: Path) -> None:
    of_everything(tmp_path / "queue.sqlite3")
    root = value(
        tmp_path / "queue.sqlite3", "SELECT rootpage FROM sqlite_master WHERE name = 'message_dead'"
    )
    with (tmp_path / "queue.sqlite3").open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(bytes(4096))

    with (
        SQLiteQueueStore(tmp_path / "queue.sqlite3") as store,
        pytest.raises(StoreCorrupt, match=r"see check\(\) and salvage\(\)"),
    ):
        store.backup(folder / "copy")

    assert list(folder.iterdir()) == []


def test_a_copy_that_lacks_something_is_found(
    store: SQLiteQueueStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted defect: the copying loses a message."""
    copy = backup_module._copy

    def lose_one(snapshot: object, temporary: Path, on_progress: object) -> None:
        copy(snapshot, temporary, on_progress)  # type: ignore[arg-type]
        with raw(temporary) as db:
            db.execute("DELETE FROM message WHERE id = (SELECT max(id) FROM message)")

    fill(store, 10)
    monkeypatch.setattr(backup_module, "_copy", lose_one)

    with pytest.raises(StoreCorrupt, match="the copy holds"):
        store.backup(folder / "copy")

    assert list(folder.iterdir()) == []


def test_a_disk_that_fills_up_while_the_copy_is_made_is_an_error_and_nothing_is_left(
    store: SQLiteQueueStore, folder: Path
) -> None:
    fill(store, 9_000)
    told = on_a_small_disk(
        folder,
        "4m",
        """
        import sys
        from pathlib import Path
        from localqueue.errors import StoreFull
        from localqueue.stores.sqlite.store import SQLiteQueueStore
        folder, store = Path(sys.argv[1]), SQLiteQueueStore(sys.argv[2])
        print(store.backup(folder / "copy").messages)
        (folder / "copy").unlink()
        try:
            store.backup(
                folder / "copy",
                on_progress=lambda *_: (folder / "other").write_bytes(bytes(2_500_000)),
            )
        except StoreFull as error:
            print(type(error.__cause__).__name__, [path.name for path in folder.iterdir()])
        store.close()
        """,
        store.path,
    )

    assert told == "9000\nOperationalError ['other']\n"


def test_a_disk_that_is_too_small_is_refused_before_anything_is_copied(
    store: SQLiteQueueStore, folder: Path
) -> None:
    fill(store, 9_000)
    told = on_a_small_disk(
        folder,
        "1m",
        """
        import sys
        from pathlib import Path
        from localqueue.errors import StoreFull
        from localqueue.stores.sqlite.store import SQLiteQueueStore
        folder, store = Path(sys.argv[1]), SQLiteQueueStore(sys.argv[2])
        try:
            store.backup(folder / "copy", on_progress=lambda *_: print("copying"))
        except StoreFull as error:
            print("needs" in str(error), list(folder.iterdir()))
        store.close()
        """,
        store.path,
    )

    assert told == "True []\n"


def test_a_folder_that_may_not_be_written_is_an_error_of_the_tree(store: SQLiteQueueStore) -> None:
    with pytest.raises(StoreError):
        store.backup("/proc/copy.sqlite3")


# --- around forks ---------------------------------------------------------------------------------
def test_a_fork_while_it_is_made_starts_it_anew_and_no_connection_crosses(
    tmp_path: Path, folder: Path
) -> None:
    told = run_program(
        f"""
        import os, sys, threading
        from localqueue.stores.protocol import Put
        from localqueue.stores.sqlite.store import SQLiteQueueStore
        store = SQLiteQueueStore(sys.argv[1], durability="relaxed")
        store.enqueue_many([Put("jobs", b"." * 3_000) for _ in range(2_000)], now=1.0)
        begun, forked, starts = threading.Event(), threading.Event(), []
        def progress(done, total):
            if done <= 256:
                starts.append(done)
            begun.set()
            if len(starts) == 1:
                # The first attempt never comes to its end unless a fork ends it.
                forked.wait(0.01)
        answers = []
        thread = threading.Thread(target=lambda: answers.append(
            store.backup({str(folder / "copy")!r}, on_progress=progress)))
        thread.start()
        begun.wait()
        child = os.fork()
        if child == 0:
            store.enqueue_many([Put("jobs", b"of the child")], now=1.0)
            store.close()
            os._exit(0)
        forked.set()
        thread.join()
        assert os.waitpid(child, 0)[1] == 0
        print(len(starts), answers[0].messages >= 2_000, store.check().ok)
        store.close()
        """,
        tmp_path / "queue.sqlite3",
    )

    assert told == "2 True True\n"
    assert [path.name for path in folder.iterdir()] == ["copy"]


# --- another life ---------------------------------------------------------------------------------
def test_a_copy_that_is_opened_goes_on_with_ids_of_its_own_and_keeps_the_old_ones(
    store: SQLiteQueueStore, folder: Path
) -> None:
    ids = fill(store, 3)
    store.backup(folder / "copy")
    (new,) = fill(store, 1)

    with SQLiteQueueStore(folder / "copy") as copy:
        (other,) = fill(copy, 1)
        assert [copy.read("jobs", one) is not None for one in ids] == [True] * 3
        assert copy.read("jobs", new) is None
        assert copy.check().ok
    assert store.read("jobs", other) is None
    assert other[:16] != new[:16]


def test_journal_positions_of_the_other_life_are_foreign_and_older_ones_are_not(
    store: SQLiteQueueStore, folder: Path
) -> None:
    fill(store, 3)
    position = store.backup(folder / "copy").position
    fill(store, 1)
    after = store.journal_end()

    with SQLiteQueueStore(folder / "copy") as copy:
        assert [event.kind for event in copy.journal(after=position)] == ["counted"]
        with pytest.raises(JournalForeign):
            copy.journal(after=after)
        fill(copy, 3)
        with pytest.raises(JournalForeign):
            copy.register_reader("late", position=after, now=START)
        with pytest.raises(JournalForeign):
            store.journal(after=copy.journal_end())


def test_a_receipt_of_one_life_is_nothing_in_the_other(
    store: SQLiteQueueStore, folder: Path
) -> None:
    """Both lease the same message next; without a leap both would give it the same token."""
    fill(store, 1)
    store.backup(folder / "copy")
    # As many events as a copy begins with.
    fill(store, 1)
    (here,) = store.lease(LeaseRequest(("jobs",)), now=START + 1)

    with SQLiteQueueStore(folder / "copy") as copy:
        (there,) = copy.lease(LeaseRequest(("jobs",)), now=START + 1)
        assert here.id == there.id
        assert copy.ack_many([receipt(here)], now=START + 2) == [False]
        assert store.ack_many([receipt(there)], now=START + 2) == [False]
        assert copy.ack_many([receipt(there)], now=START + 2) == [True]


def test_two_stores_from_one_backup_lead_two_lives(store: SQLiteQueueStore, folder: Path) -> None:
    fill(store, 1)
    store.backup(folder / "first")
    shutil.copy(folder / "first", folder / "second")

    with SQLiteQueueStore(folder / "first") as first, SQLiteQueueStore(folder / "second") as second:
        (here,) = first.lease(LeaseRequest(("jobs",)), now=START + 1)
        (there,) = second.lease(LeaseRequest(("jobs",)), now=START + 1)
        assert here.token != there.token
        assert fill(first, 1)[0][:16] != fill(second, 1)[0][:16]


def test_opening_a_copy_again_is_no_new_life(store: SQLiteQueueStore, folder: Path) -> None:
    fill(store, 1)
    store.backup(folder / "copy")
    lives = []
    for _ in range(3):
        with SQLiteQueueStore(folder / "copy") as copy:
            lives.append(fill(copy, 1)[0][:16])

    assert len(set(lives)) == 1


def test_leases_are_over_in_a_copy_and_nobody_is_charged(
    store: SQLiteQueueStore, folder: Path
) -> None:
    store.configure("jobs", {"crash_limit": 1}, now=START)
    fill(store, 2)
    store.lease(LeaseRequest(("jobs",), limit=2, timeout=9_000.0, liveness="l"), now=START + 1)
    store.backup(folder / "copy")

    with SQLiteQueueStore(folder / "copy") as copy:
        again = copy.lease(LeaseRequest(("jobs",), limit=2), now=START + 2)
        assert [(message.attempts, message.crashes) for message in again] == [(2, 0)] * 2
    assert store.lease(LeaseRequest(("jobs",), limit=2), now=START + 2) == []


def test_the_journal_of_a_copy_is_trimmed_across_the_leap(
    store: SQLiteQueueStore, folder: Path
) -> None:
    """The trimmer looks in windows: it must not look for what was never written."""
    store.configure("jobs", {"journal": False}, now=START)
    fill(store, 100)
    store.backup(folder / "copy")

    with SQLiteQueueStore(folder / "copy", durability="relaxed") as copy:
        for round_ in range(4):
            fill(copy, 2_100)
            leased = copy.lease(LeaseRequest(("jobs",), limit=2_100), now=LATER + round_)
            copy.ack_many([Receipt(m.queue, m.id, m.token) for m in leased], now=LATER + round_)
        copy.enqueue_many([Put("jobs", b"1")], now=LATER + 9)
        assert copy.check().ok
    assert value(folder / "copy", "SELECT count(*) FROM event") < 5_000


def test_a_restored_backup_is_there_for_who_opens_it_anew_and_a_running_process_is_told(
    store: SQLiteQueueStore, folder: Path
) -> None:
    fill(store, 3)
    store.backup(folder / "copy")
    fill(store, 4)

    delete(store.path)
    shutil.copy(folder / "copy", store.path)

    with pytest.raises(StoreMoved):
        fill(store, 1)
    with pytest.raises(StoreMoved):
        store.backup(folder / "another")
    with SQLiteQueueStore(store.path) as restored:
        assert restored.stats("jobs", now=START).total == 3


def test_a_copy_is_only_read_while_it_is_made(store: SQLiteQueueStore, folder: Path) -> None:
    fill(store, 100)
    before = {
        name: content for name, content in picture(store.path.parent).items() if "-shm" not in name
    }

    store.backup(folder / "copy")

    after = {
        name: content for name, content in picture(store.path.parent).items() if "-shm" not in name
    }
    assert after == before


def test_threads_make_copies_at_the_same_time(store: SQLiteQueueStore, folder: Path) -> None:
    fill(store, 2_000)
    copies: list[int] = []

    def copy(name: str) -> None:
        copies.append(store.backup(folder / name).messages)

    threads = [threading.Thread(target=copy, args=(str(n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert copies == [2_000] * 4
    assert sorted(path.name for path in folder.iterdir()) == ["0", "1", "2", "3"]
