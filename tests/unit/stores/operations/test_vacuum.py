"""vacuum() makes the file as small as what it holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from localqueue.errors import StoreBusy, StoreClosed
from localqueue.stores.protocol import LeaseRequest, Put
from localqueue.stores.sqlite.operations.daybook import count_unposted
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.unit.stores.operations.phrases import (
    LATER,
    START,
    everything,
    fill,
    of_everything,
    on_a_small_disk,
    raw,
    value,
)


def grow_and_drain(store: SQLiteQueueStore) -> None:
    fill(store, 5_000, "large")
    store.purge("large", now=START + 1)


def test_space_that_is_free_goes_back_and_everything_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    of_everything(path)
    with SQLiteQueueStore(path, durability="relaxed") as store:
        ids = [message.id for message in store.peek("jobs", 1_000, now=LATER)]
        grow_and_drain(store)

        report = store.vacuum()

        assert report.bytes_after < report.bytes_before / 2
        assert report.bytes_freed == report.bytes_before - report.bytes_after
        assert report.as_dict()["bytes_freed"] == report.bytes_freed
        assert path.stat().st_size == report.bytes_after
        assert Path(f"{path}-wal").stat().st_size == 0
        assert value(path, "PRAGMA freelist_count") == 0
        assert [message.id for message in store.peek("jobs", 1_000, now=LATER)] == ids
        assert store.check().ok
        fill(store, 10)
    with SQLiteQueueStore(path) as again:
        assert again.check().ok


def test_the_connection_is_afterwards_what_it_was_before(tmp_path: Path) -> None:
    with SQLiteQueueStore(tmp_path / "queue.sqlite3", durability="relaxed") as store:
        grow_and_drain(store)
        store.vacuum()

        pragmas = store.diagnostics()["settings"]["pragmas"]

    assert (pragmas["temp_store"], pragmas["journal_mode"]) == (2, "wal")


def test_other_stores_go_on_before_and_after(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    with SQLiteQueueStore(path, durability="relaxed") as store, SQLiteQueueStore(path) as other:
        grow_and_drain(store)
        ids = fill(other, 50)
        store.vacuum()
        more = fill(other, 50)

        leased = store.lease(LeaseRequest(("jobs",), limit=200), now=LATER)

    assert [message.id for message in leased] == ids + more


def test_what_stands_in_the_daybook_is_posted_first(tmp_path: Path, noting: None) -> None:
    path = tmp_path / "queue.sqlite3"
    with SQLiteQueueStore(path) as store, SQLiteQueueStore(path) as other:
        grow_and_drain(store)
        for number in range(5):
            store.enqueue_many([Put("jobs", b"%d" % number)], now=START + 1)
        noted = count_unposted(path, 1.0)

        other.vacuum()

        assert noted == 4
        assert count_unposted(path, 1.0) == 0
        assert value(path, "SELECT count(*) FROM message") == 5
        bodies = [message.body for message in store.peek("jobs", 9, now=LATER)]
        assert bodies == [b"0", b"1", b"2", b"3", b"4"]
        assert store.check().ok


def test_a_reader_of_an_older_state_is_not_disturbed(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    with SQLiteQueueStore(path, durability="relaxed", timeout=0.5) as store:
        fill(store, 2_000)
        with raw(path) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM message").fetchone() == (2_000,)
            store.purge("jobs", now=START)

            store.vacuum()

            assert reader.execute("SELECT count(*) FROM message").fetchone() == (2_000,)
        assert store.vacuum().bytes_after < 500_000
        assert store.check().ok


def test_it_waits_for_writers_until_the_timeout(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    with (
        SQLiteQueueStore(path, timeout=0.2) as store,
        SQLiteQueueStore(path) as other,
    ):
        fill(store, 1)
        fill(other, 1)

        with pytest.raises(StoreBusy):
            other._file.exclusively(lambda _: store.vacuum())

        assert store.vacuum().bytes_after > 0


def test_a_closed_store_is_not_vacuumed(tmp_path: Path) -> None:
    store = SQLiteQueueStore(tmp_path / "queue.sqlite3")
    store.close()

    with pytest.raises(StoreClosed):
        store.vacuum()


def test_a_disk_without_room_is_an_error_and_nothing_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    told = on_a_small_disk(
        folder,
        "40m",
        """
        import shutil, sys
        from pathlib import Path
        from localqueue.errors import StoreFull
        from localqueue.stores.protocol import Put
        from localqueue.stores.sqlite.store import SQLiteQueueStore
        folder = Path(sys.argv[1])
        store = SQLiteQueueStore(folder / "queue.sqlite3", durability="relaxed")
        for _ in range(20):
            store.enqueue_many([Put("jobs", b"." * 3_000) for _ in range(150)], now=1.0)
        free = shutil.disk_usage(folder).free
        (folder / "other").write_bytes(bytes(free - 1_000_000))
        try:
            print(store.vacuum())
        except StoreFull as error:
            print("full:", type(error.__cause__).__name__)
        (folder / "other").unlink()
        print(store.check().ok, store.check().messages)
        store.close()
        """,
    )

    assert told == "full: OperationalError\nTrue 3000\n"


def test_nothing_happens_to_a_file_that_has_nothing_to_give(tmp_path: Path) -> None:
    with SQLiteQueueStore(tmp_path / "queue.sqlite3") as store:
        store.queues()
        first, second = store.vacuum(), store.vacuum()

        assert second.bytes_after == first.bytes_after
        assert everything(store) == {}
