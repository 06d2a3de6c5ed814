"""A process that forks with the queue open."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.unit.stores.phrases import contents, run_program


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder / "queue.sqlite3"


def test_a_child_that_was_forked_with_the_queue_open_uses_it_and_so_does_its_parent(
    path: Path,
) -> None:
    run_program(
        """
        import os, sys
        from localqueue import PersistentQueue
        queue = PersistentQueue("jobs", store_path=sys.argv[1])
        queue.put("parent 1")
        child = os.fork()
        if child == 0:
            assert queue.get(block=False) == "parent 1"
            queue.task_done()
            for number in range(50):
                queue.put(f"child {number}")
            os._exit(0)
        for number in range(50):
            queue.put(f"parent {number}")
        assert os.waitpid(child, 0)[1] == 0
        """,
        path,
    )

    expected = {f"{who} {number}" for who in ("child", "parent") for number in range(50)}
    assert set(contents(path)) == expected


def test_a_child_goes_on_after_its_parent_closed_and_nothing_is_lost(path: Path) -> None:
    """SQLite removes the -wal with the last connection it knows of: the child must be known."""
    run_program(
        """
        import os, sys
        from localqueue import PersistentQueue
        queue = PersistentQueue("jobs", store_path=sys.argv[1])
        queue.put("parent")
        ready, closed = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            queue.put("child, before")
            os.write(ready[1], b".")
            os.read(closed[0], 1)
            queue.put("child, after")
            os._exit(0)
        os.read(ready[0], 1)
        queue.close()
        with PersistentQueue("jobs", store_path=sys.argv[1]) as third:
            third.put("third")
        os.write(closed[1], b".")
        assert os.waitpid(child, 0)[1] == 0
        """,
        path,
    )

    assert contents(path) == ["parent", "child, before", "third", "child, after"]


def test_a_child_that_ends_or_closes_takes_nothing_from_its_parent(path: Path) -> None:
    run_program(
        """
        import os, sys
        from localqueue import PersistentQueue
        queue = PersistentQueue("jobs", store_path=sys.argv[1])
        queue.put("a")
        leased = queue.get_message()
        for end in (queue.close, lambda: None, queue.qsize):
            child = os.fork()
            if child == 0:
                end()
                del queue, end
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            queue.put("b")
        assert queue.ack(leased)
        """,
        path,
    )

    assert contents(path) == ["b", "b", "b"]


def test_threads_that_are_busy_while_the_process_forks_disturb_neither_side(path: Path) -> None:
    run_program(
        """
        import os, sys, threading
        from localqueue import PersistentQueue
        from localqueue.stores.sqlite.store import SQLiteQueueStore
        store = SQLiteQueueStore(sys.argv[1], durability="relaxed")
        queue = PersistentQueue("jobs", store=store)
        queue.qsize()
        def work(name):
            for number in range(100):
                queue.put(f"{name} {number}")
                queue.qsize()
        threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        children = []
        for name in ("a", "b", "c", "d"):
            child = os.fork()
            if child == 0:
                for number in range(10):
                    queue.put(f"{name} {number}")
                os._exit(0)
            children.append(child)
        for thread in threads:
            thread.join()
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
        """,
        path,
    )

    found = contents(path)
    assert len(found) == len(set(found)) == 2 * 100 + 4 * 10
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


def test_a_file_that_was_deleted_before_a_fork_is_not_made_again_after_it(path: Path) -> None:
    answers = run_program(
        """
        import os, sys
        from localqueue import PersistentQueue, StoreMoved
        queue = PersistentQueue("jobs", store_path=sys.argv[1])
        queue.put("a")
        os.unlink(sys.argv[1])
        child = os.fork()
        try:
            queue.put("b")
        except StoreMoved:
            os.write(1, b"moved\\n")
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        """,
        path,
    )

    assert answers.split() == ["moved", "moved"]
    assert not path.exists()


def test_a_memory_store_does_not_cross_a_fork_and_says_so(path: Path) -> None:
    answer = run_program(
        """
        import os
        from localqueue import PersistentQueue, StoreError
        queue = PersistentQueue("jobs", store="memory://")
        queue.put("a")
        child = os.fork()
        if child == 0:
            try:
                queue.put("b")
            except StoreError as error:
                print(error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        assert queue.get(block=False) == "a"
        """,
        path,
    )

    assert "does not cross a fork" in answer
