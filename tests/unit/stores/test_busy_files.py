"""A file that others hold: waiting for them, in time, and closing."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localqueue.errors import StoreBusy, StoreClosed
from localqueue.queue import PersistentQueue
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.unit.stores.phrases import PATIENCE, Queue, filled, run_program

NOW = 1_700_000_000.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder / "queue.sqlite3"


@pytest.fixture
def held(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection of somebody who is in the middle of writing our file."""
    filled(path, "before")
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    yield db
    db.close()


def test_a_file_that_others_hold_too_long_is_busy_in_time(
    path: Path, held: sqlite3.Connection
) -> None:
    queue: Queue = PersistentQueue("jobs", store=SQLiteQueueStore(path, timeout=0.2))

    for call in (lambda: queue.put("a"), lambda: queue.get(timeout=PATIENCE), queue.qsize):
        began = time.monotonic()
        with pytest.raises(StoreBusy, match="longer than the timeout") as raised:
            call()
        assert 0.2 <= time.monotonic() - began < PATIENCE
        assert isinstance(raised.value.__cause__, sqlite3.OperationalError)

    held.execute("ROLLBACK")
    queue.put("a")
    assert queue.qsize() == 2
    queue.store.close()


@pytest.fixture
def being_made(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection of somebody who is about to make the file: it is not in WAL mode yet."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    yield db
    db.close()


def test_a_file_that_others_are_making_is_waited_for(
    path: Path, being_made: sqlite3.Connection
) -> None:
    store = SQLiteQueueStore(path, timeout=PATIENCE)
    found: list[list[str]] = []
    began = threading.Event()

    def look() -> None:
        began.set()
        found.append(store.queues())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    assert began.wait(PATIENCE)
    being_made.execute("ROLLBACK")
    thread.join(PATIENCE)

    assert found == [[]]
    store.close()


def test_a_file_that_others_take_too_long_to_make_is_busy_in_time(
    path: Path, being_made: sqlite3.Connection
) -> None:
    store = SQLiteQueueStore(path, timeout=0.2)
    began = time.monotonic()

    with pytest.raises(StoreBusy):
        store.queues()

    assert 0.2 <= time.monotonic() - began < PATIENCE
    being_made.execute("ROLLBACK")
    assert store.queues() == []
    store.close()


def test_a_timeout_of_zero_does_not_wait(path: Path, held: sqlite3.Connection) -> None:
    store = SQLiteQueueStore(path, timeout=0)

    with pytest.raises(StoreBusy):
        PersistentQueue[str]("jobs", store=store).put("a")

    store.close()


def test_who_only_reads_does_not_wait_for_who_writes(path: Path, held: sqlite3.Connection) -> None:
    held.execute("ROLLBACK")
    store = SQLiteQueueStore(path, timeout=PATIENCE)
    queue: Queue = PersistentQueue("jobs", store=store)
    assert queue.qsize() == 1

    held.execute("BEGIN IMMEDIATE")

    assert queue.qsize() == 1
    assert queue.stats().ready == 1
    assert len(queue.peek(5)) == 1
    store.close()


def test_a_call_that_waits_goes_on_when_the_others_are_done(
    path: Path, held: sqlite3.Connection
) -> None:
    held.execute("ROLLBACK")
    store = SQLiteQueueStore(path, timeout=PATIENCE)
    queue: Queue = PersistentQueue("jobs", store=store)
    queue.qsize()
    held.execute("BEGIN IMMEDIATE")
    began, done = threading.Event(), threading.Event()

    def put() -> None:
        began.set()
        queue.put("a")
        done.set()

    thread = threading.Thread(target=put, daemon=True)
    thread.start()
    assert began.wait(PATIENCE)
    assert not done.is_set()
    held.execute("COMMIT")
    thread.join(PATIENCE)

    assert done.is_set()
    assert queue.qsize() == 2
    store.close()


class Inside(threading.Thread):
    """Stays inside a transaction of a store until it is told to leave."""

    def __init__(self, store: SQLiteQueueStore) -> None:
        super().__init__(daemon=True)
        self.store, self.entered, self.leave = store, threading.Event(), threading.Event()
        self.start()
        assert self.entered.wait(PATIENCE)

    def run(self) -> None:
        self.store.record_worker_heartbeat("jobs", "w1", now=self._stay)

    def _stay(self) -> float:
        self.entered.set()
        self.leave.wait(PATIENCE)
        return NOW


def test_a_thread_that_waits_for_another_is_busy_in_time_and_readers_are_not(path: Path) -> None:
    filled(path, "before")
    store = SQLiteQueueStore(path, timeout=0.2)
    queue: Queue = PersistentQueue("jobs", store=store)
    queue.qsize()
    inside = Inside(store)

    with pytest.raises(StoreBusy, match="other threads"):
        queue.put("a")
    assert queue.qsize() == 1
    assert queue.stats().ready == 1
    inside.leave.set()
    inside.join(PATIENCE)

    queue.put("a")
    assert queue.qsize() == 2
    store.close()


def test_threads_share_a_store_from_its_first_call_on(path: Path) -> None:
    store = SQLiteQueueStore(path, durability="relaxed")
    queue: Queue = PersistentQueue("jobs", store=store)
    start = threading.Barrier(8)
    errors: list[BaseException] = []

    def put(number: int) -> None:
        try:
            start.wait(PATIENCE)
            for step in range(10):
                queue.put([number, step])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    assert errors == []
    seen = [message.value for message in queue.get_messages(1000)]
    assert sorted(seen) == [[number, step] for number in range(8) for step in range(10)]
    for number in range(8):
        assert [step for who, step in seen if who == number] == list(range(10))
    store.close()


def test_two_processes_see_each_others_messages(path: Path) -> None:
    with PersistentQueue[str]("jobs", store_path=path) as queue:
        queue.put("question")
        run_program(
            """
            import sys
            from localqueue import PersistentQueue
            queue = PersistentQueue("jobs", store_path=sys.argv[1])
            message = queue.get_message(block=False)
            queue.put("answer to " + message.value)
            queue.ack(message)
            """,
            path,
        )

        assert queue.get(block=False) == "answer to question"


@pytest.mark.parametrize("make", [MemoryQueueStore, None])
def test_a_store_is_closed_once_and_for_all(
    path: Path, make: Callable[[], MemoryQueueStore] | None
) -> None:
    store = make() if make else SQLiteQueueStore(path)
    store.queues()

    store.close()
    store.close()

    with pytest.raises(StoreClosed):
        store.queues()
    with pytest.raises(StoreClosed):
        store.purge("jobs", now=NOW)


def test_closing_waits_for_who_is_writing(path: Path) -> None:
    store = SQLiteQueueStore(path)
    store.queues()
    inside = Inside(store)
    closing = threading.Thread(target=store.close, daemon=True)
    closing.start()

    inside.leave.set()
    inside.join(PATIENCE)
    closing.join(PATIENCE)

    again = SQLiteQueueStore(path)
    assert again.stats("jobs", now=NOW).last_seen_by_worker_id == {"w1": NOW}
    again.close()
