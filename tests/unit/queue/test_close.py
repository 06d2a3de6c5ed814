"""Opening late and closing: who closes what, and what a closed queue says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localqueue.errors import StoreClosed
from localqueue.queue import PersistentQueue
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.unit.queue.phrases import NewQueue, Queue

CALLS: dict[str, Callable[[Queue], object]] = {
    "put": lambda queue: queue.put("a"),
    "put_many": lambda queue: queue.put_many(["a"]),
    "put_stream": lambda queue: queue.put_stream(["a"]),
    "get": lambda queue: queue.get(block=False),
    "get_messages": lambda queue: queue.get_messages(1, timeout=60),
    "peek": lambda queue: queue.peek(),
    "ack": lambda queue: queue.ack("0" * 32),
    "release": lambda queue: queue.release("0" * 32),
    "dead_letter": lambda queue: queue.dead_letter("0" * 32),
    "cancel": lambda queue: queue.cancel("0" * 32),
    "inspect": lambda queue: queue.inspect("0" * 32),
    "qsize": lambda queue: queue.qsize(),
    "empty": lambda queue: queue.empty(),
    "full": lambda queue: queue.full(),
    "stats": lambda queue: queue.stats(),
    "settings": lambda queue: queue.settings(),
    "pause": lambda queue: queue.pause(),
    "dead_letters": lambda queue: queue.dead_letters(),
    "prune_dead_letters": lambda queue: queue.prune_dead_letters(0),
    "requeue_dead_letters": lambda queue: queue.requeue_dead_letters(),
    "requeue_dead": lambda queue: queue.requeue_dead("0" * 32),
    "purge": lambda queue: queue.purge(),
    "journal": lambda queue: queue.journal(),
    "history": lambda queue: queue.history("0" * 32),
    "heartbeat": lambda queue: queue.record_worker_heartbeat("w1"),
    "store": lambda queue: queue.store,
}


def test_building_a_queue_touches_no_disk(tmp_path: Path) -> None:
    path = tmp_path / "new" / "queue.sqlite3"
    queues: list[Queue] = [
        PersistentQueue("jobs", store_path=path),
        PersistentQueue("jobs", store=f"sqlite:///{path}"),
        PersistentQueue("jobs", store=SQLiteQueueStore(path)),
    ]

    for queue in queues:
        queue.close()

    assert list(tmp_path.iterdir()) == []


def test_without_a_path_the_file_is_made_in_the_users_data_folder_at_the_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue: Queue = PersistentQueue("jobs")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    queue.put("a")
    queue.close()

    assert (tmp_path / "data" / "localqueue" / "queue.sqlite3").is_file()


def test_without_a_data_folder_it_is_the_one_in_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    with PersistentQueue[str]("jobs") as queue:
        queue.put("a")

    assert (tmp_path / ".local" / "share" / "localqueue" / "queue.sqlite3").is_file()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_closed_queue_says_so(new_queue: NewQueue, call: Callable[[Queue], object]) -> None:
    queue = new_queue()
    queue.put("a")

    queue.close()

    with pytest.raises(StoreClosed):
        call(queue)


def test_a_queue_that_was_closed_before_its_first_call_opens_nothing(tmp_path: Path) -> None:
    queue: Queue = PersistentQueue("jobs", store_path=tmp_path / "queue.sqlite3")
    queue.close()

    with pytest.raises(StoreClosed, match="queue 'jobs' was closed"):
        queue.put("a")

    assert list(tmp_path.iterdir()) == []


def test_closing_twice_is_closing(queue: Queue) -> None:
    queue.put("a")

    queue.close()
    queue.close()


def test_a_queue_closes_the_store_that_it_opened(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    by_path: Queue = PersistentQueue("jobs", store_path=path)
    by_url: Queue = PersistentQueue("jobs", store=f"sqlite:///{path}")
    stores = [by_path.store, by_url.store]

    by_path.close()
    by_url.close()

    for store in stores:
        with pytest.raises(StoreClosed):
            store.queues()
    assert [file.name for file in tmp_path.iterdir()] == ["queue.sqlite3"]


def test_a_store_that_the_user_gave_stays_open(new_queue: NewQueue) -> None:
    one, other = new_queue("one"), new_queue("other")
    one.put("a")

    one.close()

    other.put("b")
    assert new_queue("one").get(block=False) == "a"


def test_with_closes_also_after_an_error() -> None:
    queue: Queue = PersistentQueue("jobs", store="memory://")

    def fails() -> None:
        with queue:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    with pytest.raises(StoreClosed):
        queue.put("b")


def test_with_gives_the_queue_itself() -> None:
    queue: Queue = PersistentQueue("jobs", store="memory://")

    with queue as entered:
        assert entered is queue


def test_messages_that_were_got_come_again_after_closing(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    with PersistentQueue[str]("jobs", store_path=path, lease_timeout=0.2) as queue:
        queue.put("a")
        queue.get()

    with PersistentQueue[str]("jobs", store_path=path) as again:
        assert again.get_message(timeout=20).attempts == 2


def test_a_closed_store_makes_every_queue_on_it_say_so(queue: Queue) -> None:
    queue.put("a")
    queue.store.close()

    with pytest.raises(StoreClosed):
        queue.put("b")


def test_two_memory_stores_share_nothing() -> None:
    one: Queue = PersistentQueue("jobs", store=MemoryQueueStore())
    two: Queue = PersistentQueue("jobs", store="memory://")

    one.put("a")

    assert two.empty()


def test_a_representation_names_queue_and_store() -> None:
    queue: PersistentQueue[Any] = PersistentQueue("jobs", store=MemoryQueueStore())

    assert repr(queue) == "PersistentQueue('jobs', store=MemoryQueueStore())"
