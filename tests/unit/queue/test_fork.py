"""A fork in the middle of another thread's first call."""

from __future__ import annotations

from pathlib import Path

from tests.unit.stores.phrases import contents, run_program


def test_a_child_does_not_wait_for_a_thread_that_was_opening_the_queue(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    run_program(
        """
        import os, sys, threading
        from localqueue import PersistentQueue, SQLiteQueueStore

        parent, began, may_end = os.getpid(), threading.Event(), threading.Event()

        class OpensSlowly(SQLiteQueueStore):
            def open_clock(self, clock):
                if os.getpid() == parent:
                    began.set()
                    may_end.wait()
                return super().open_clock(clock)

        queue = PersistentQueue("jobs", store=OpensSlowly(sys.argv[1]))
        first = threading.Thread(target=queue.put, args=("parent",))
        first.start()
        began.wait()
        child = os.fork()
        if child == 0:
            queue.put("child")
            queue.get_nowait()
            queue.task_done()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        may_end.set()
        first.join()
        """,
        path,
    )

    assert contents(path) == ["parent"]


def test_a_child_does_not_wait_for_a_thread_that_was_settling(tmp_path: Path) -> None:
    """``join`` holds the lock of what is unfinished while it looks."""
    path = tmp_path / "queue.sqlite3"
    run_program(
        """
        import os, sys, threading
        from localqueue import PersistentQueue

        queue = PersistentQueue("jobs", store_path=sys.argv[1])
        unfinished = queue._attachment.unfinished
        held, may_end = threading.Event(), threading.Event()

        def hold():
            with unfinished._changed:
                held.set()
                may_end.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        child = os.fork()
        if child == 0:
            queue.put("child")
            queue.get()
            queue.task_done()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        may_end.set()
        holder.join()
        """,
        path,
    )

    assert contents(path) == []
