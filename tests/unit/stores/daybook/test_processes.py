"""Several processes on one file: each sees what another has noted, and the last one tidies up."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from localqueue.errors import StoreBusy, StoreError
from localqueue.stores.sqlite import connection, holding
from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.daybook.entries import Entry
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.unit.stores.daybook.phrases import (
    NOW,
    QUEUE,
    ack,
    bodies,
    daybook,
    is_noted,
    lease,
    open_store,
    put,
    query,
    waiting,
)
from tests.unit.stores.engine.phrases import runner_of
from tests.unit.stores.phrases import PATIENCE, count_noted, run_program

IN_TABLES = "SELECT value FROM message ORDER BY id"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder / "queue.sqlite3"


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    return count_noted(monkeypatch)


@pytest.fixture
def store(path: Path, noting: None) -> Iterator[SQLiteQueueStore]:
    with open_store(path) as store:
        yield store


def test_a_process_that_only_reads_sees_what_another_has_noted(
    path: Path, store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    put(store, b"1", b"2")
    lease(store)
    assert len(noted) == 2
    assert query(path, IN_TABLES) == []

    said = run_program(
        """
        import sys
        from localqueue.stores.sqlite.store import SQLiteQueueStore
        with SQLiteQueueStore(sys.argv[1]) as store:
            stats = store.stats("jobs", now=0.0)
            print(stats.ready, stats.inflight, store.journal()[-1].kind)
        """,
        path,
    )

    assert said.split() == ["1", "1", "leased"]
    assert query(path, IN_TABLES) == [(b"1",), (b"2",)]
    assert not is_noted(noted, lambda: put(store, b"3"))
    assert waiting(store) == [b"2", b"3"]


def test_what_a_process_that_was_killed_has_noted_is_there(path: Path) -> None:
    run_program(
        """
        import os, sys
        from localqueue import PersistentQueue
        queue = PersistentQueue("jobs", store_path=sys.argv[1])
        for number in range(20):
            queue.put(number)
        assert queue.get() == 0
        queue.task_done()
        os._exit(0)
        """,
        path,
    )
    assert daybook(path).exists()
    assert len(query(path, IN_TABLES)) < 10

    with SQLiteQueueStore(path) as store:
        assert waiting(store) == [b"%d" % number for number in range(1, 20)]
        assert store.check().ok
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_who_closes_leaves_the_tables_complete_and_no_book(
    path: Path, store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    put(store, b"1", b"2")
    assert noted
    assert query(path, IN_TABLES) == []

    store.close()

    assert query(path, IN_TABLES) == [(b"1",), (b"2",)]
    assert not daybook(path).exists()


def test_the_book_goes_with_the_last_who_uses_the_file(
    path: Path, store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    with SQLiteQueueStore(path, durability="relaxed") as other:
        assert waiting(other) == []
        put(store, b"1")
        assert is_noted(noted, lambda: put(store, b"2"))

        store.close()

        assert daybook(path).exists()
        assert query(path, IN_TABLES) == [(b"1",), (b"2",)]
        put(other, b"3")
        assert is_noted(noted, lambda: put(other, b"4"))
    assert not daybook(path).exists()
    assert query(path, IN_TABLES) == [(b"1",), (b"2",), (b"3",), (b"4",)]


def test_nobody_notes_into_a_book_of_which_another_still_knows(
    path: Path, store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    """Each has to see what the others did, whoever has the file at the moment."""
    with SQLiteQueueStore(path, durability="relaxed") as other:
        got: list[bytes] = []
        for number in range(100):
            one, two = (store, other) if number % 7 < 4 else (other, store)
            put(one, b"%d" % number)
            if number % 3 == 0:
                got += bodies(lease(two, 2, remove=True))
        got += bodies(lease(other, 200, remove=True))

    assert len(noted) > 20
    assert got == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("durability", ["full", "relaxed"])
def test_who_wrote_before_a_book_was_deleted_sees_what_stands_in_the_next_one(
    path: Path, noting: None, noted: list[Entry], durability: str
) -> None:
    """It still has the old one open, in which there is nothing new."""
    with open_store(path, durability) as one, open_store(path, durability) as two:
        for store in (one, two, one):
            for _ in range(3):
                put(store)
        assert len(waiting(two)) == 9
        daybook(path).unlink()
        while not is_noted(noted, lambda: put(two)):
            """The first ones are for the tables."""
        before = len(waiting(two))
        assert is_noted(noted, lambda: put(two, b"noted"))

        put(one, b"into the tables")

        assert waiting(two)[before:] == [b"noted", b"into the tables"]
        assert waiting(one) == waiting(two)


def test_who_reads_sees_what_stands_in_the_book_that_took_the_place_of_its_own(
    path: Path, store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    put(store)
    put(store)
    assert waiting(store)
    with open_store(path) as other:
        daybook(path).unlink()
        while not is_noted(noted, lambda: put(other)):
            """The first ones are for the tables."""
        put(other, b"noted")

        assert waiting(store)[-1] == b"noted"


def test_what_was_noted_in_a_book_that_was_deleted_since_is_seen_and_posted(
    path: Path, store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    put(store, b"1")
    put(store, b"2")
    assert noted
    daybook(path).unlink()

    assert waiting(store) == [b"1", b"2"]
    put(store, b"3")
    put(store, b"4")
    assert daybook(path).exists()
    assert waiting(store) == [b"1", b"2", b"3", b"4"]


def test_a_book_that_was_only_read_is_not_noted_in_when_it_was_deleted_since(
    path: Path, store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    put(store)
    put(store)
    with open_store(path) as other:
        # As it was opened it posted what was noted, from the file.
        daybook(path).unlink()

        while not is_noted(noted, lambda: put(other)):
            """The first ones are for the tables."""

        assert daybook(path).exists()


def remove_locks(path: Path) -> None:
    shutil.rmtree(path.with_name(f"{path.name}-run"))


@pytest.fixture
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the lock is that of others is looked at with every call."""
    monkeypatch.setattr(holding, "SURE_FOR", 0.0)


@pytest.mark.usefixtures("watchful")
def test_who_notes_while_its_lock_is_removed_and_who_has_another_one_take_nothing_from_each_other(
    path: Path, store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    put(store, b"before")
    put(store, b"noted")
    assert noted
    remove_locks(path)
    expected = [b"before", b"noted"]

    with SQLiteQueueStore(path, durability="relaxed") as other:
        for number in range(20):
            body = b"%d" % number
            put(other if number % 5 < 2 else store, body)
            expected.append(body)

        assert waiting(store) == waiting(other) == expected
        assert store.check().ok


def test_who_is_alone_while_its_lock_is_removed_goes_on_with_what_it_has_noted(
    path: Path, store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    put(store, b"1", b"2")
    leased = lease(store)
    assert noted
    remove_locks(path)
    # As it is: not with every call.
    time.sleep(2 * holding.SURE_FOR)

    put(store, b"3")

    assert path.with_name(f"{path.name}-run").exists()
    assert ack(store, leased) == [True]
    assert waiting(store) == [b"2", b"3"]


@pytest.mark.usefixtures("watchful")
def test_who_cannot_leave_a_removed_lock_because_somebody_reads_is_busy_and_stores_nothing(
    path: Path, noting: None
) -> None:
    at_it, done = threading.Event(), threading.Event()

    def read(_: object) -> None:
        at_it.set()
        assert done.wait(PATIENCE)

    with SQLiteQueueStore(path, durability="relaxed", timeout=0.1) as store:
        put(store, b"1")
        reader = threading.Thread(target=runner_of(store).read, args=(read,))
        reader.start()
        assert at_it.wait(PATIENCE)
        remove_locks(path)

        with pytest.raises(StoreBusy, match="folder of locks was removed"):
            put(store, b"2")

        done.set()
        reader.join(PATIENCE)
        put(store, b"3")
        assert waiting(store) == [b"1", b"3"]


def test_who_closes_without_its_lock_leaves_what_it_has_noted_to_the_next(
    path: Path, noting: None, noted: list[Entry]
) -> None:
    store = open_store(path)
    put(store, b"1", b"2")
    assert noted
    remove_locks(path)

    store.close()

    assert query(path, IN_TABLES) == []
    with SQLiteQueueStore(path) as after:
        assert waiting(after) == [b"1", b"2"]
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_child_of_a_fork_and_its_parent_each_have_a_book_of_their_own(path: Path) -> None:
    said = run_program(
        """
        import os, sys
        from localqueue.stores.sqlite.daybook import book
        book.WARM_UP = 0
        from localqueue.stores.protocol import Put
        from localqueue.stores.sqlite.daybook.book import Daybook
        from localqueue.stores.sqlite.store import SQLiteQueueStore
        noted, note = [], Daybook.note
        Daybook.note = lambda self, noting, **how: noted.append(noting) or note(self, noting, **how)
        store = SQLiteQueueStore(sys.argv[1], durability="relaxed")

        def put(who):
            for number in range(50):
                store.enqueue_many([Put("jobs", f'"{who} {number}"'.encode())], now=1.0)

        put("before")
        assert noted
        child = os.fork()
        noted.clear()
        put("child" if child == 0 else "parent")
        if child == 0:
            store.close()
            os._exit(0 if noted else 1)
        assert os.waitpid(child, 0)[1] == 0
        print(len(noted))
        os._exit(0)
        """,
        path,
    )

    assert int(said) > 0
    expected = {f'"{who} {n}"'.encode() for who in ("before", "child", "parent") for n in range(50)}
    with SQLiteQueueStore(path) as store:
        found = waiting(store, 1.0)
        assert len(found) == len(expected)
        assert set(found) == expected
        assert store.check().ok


def test_a_fork_takes_nothing_that_was_noted_and_doubles_nothing(
    path: Path, store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    """The file is closed around a fork, and what was noted is posted then."""
    put(store, b"1")
    runner = runner_of(store)
    runner.before_fork()
    assert query(path, IN_TABLES) == [(b"1",)]
    runner.after_fork(in_child=False)

    assert waiting(store, NOW) == [b"1"]
    put(store, b"2")
    assert bodies(lease(store, 2)) == [b"1", b"2"]
    assert store.stats(QUEUE, now=NOW).inflight == 2


NOTES_AND_DIES = """
    import os, sys
    from localqueue.stores.sqlite.daybook import book
    book.WARM_UP = 0
    from localqueue.stores.protocol import Put
    from localqueue.stores.sqlite.store import SQLiteQueueStore
    store = SQLiteQueueStore(sys.argv[1], durability="relaxed")
    for body in (b"1", b"2", b"3"):
        store.enqueue_many([Put("jobs", body)], now=1.0)
    os._exit(0)
    """
"""The first of them is in the tables, where it made the queue."""


def refuse(db: sqlite3.Connection, where: str) -> None:
    raise sqlite3.OperationalError("disk I/O error")


def test_who_cannot_open_the_file_leaves_what_was_noted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_program(NOTES_AND_DIES, path)

    with monkeypatch.context() as patch:
        patch.setattr(connection, "bring_up_to_date", refuse)
        with pytest.raises(StoreError):
            SQLiteQueueStore(path).queues()

    with SQLiteQueueStore(path) as store:
        assert waiting(store, 1.0) == [b"1", b"2", b"3"]


def test_who_cannot_open_the_file_leaves_what_is_to_be_done(
    path: Path, store: SQLiteQueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed sync somebody has to repair the file, whoever gives up before."""
    marks = path.with_name(f"{path.name}-run") / "lock"
    store.close()
    run_program(NOTES_AND_DIES, path)
    with marks.open("r+b") as file:
        file.write(b"\1")

    with monkeypatch.context() as patch:
        patch.setattr(connection, "bring_up_to_date", refuse)
        with pytest.raises(StoreError):
            SQLiteQueueStore(path).queues()

    assert marks.read_bytes()[:1] == b"\1"
    with SQLiteQueueStore(path) as again:
        assert waiting(again) == [b"1", b"2", b"3"]
    assert not marks.exists()


def test_what_is_noted_while_another_is_about_to_tidy_up_stays(
    path: Path, store: SQLiteQueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It let go of the lock as the last one; before it goes on, another comes, notes and dies."""
    put(store, b"0")
    leave = Companions.leave

    def late(self: Companions, user: int, *, tidy: bool = True) -> None:
        if tidy:
            # Whoever comes waits for it, or has a folder of its own.
            monkeypatch.setattr(Companions, "leave", leave)
            dying = threading.Thread(target=run_program, args=(NOTES_AND_DIES, path))
            dying.start()
            dying.join(1.0)
            leave(self, user, tidy=tidy)
            dying.join(PATIENCE)
        else:
            leave(self, user, tidy=tidy)

    monkeypatch.setattr(Companions, "leave", late)
    store.close()

    with SQLiteQueueStore(path) as again:
        assert sorted(waiting(again, NOW)) == [b"0", b"1", b"2", b"3"]
