"""Several processes on one file: each sees what another has noted, and the last one tidies up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localqueue.stores.sqlite.daybook.entries import Entry
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.unit.stores.daybook.phrases import (
    NOW,
    QUEUE,
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
from tests.unit.stores.phrases import count_noted, run_program

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
        Daybook.note = lambda self, noting: noted.append(noting) or note(self, noting)
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
