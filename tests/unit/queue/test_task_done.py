"""get(), task_done() and join(), as the standard library's queue has them."""

from __future__ import annotations

import pytest

from localqueue.errors import InvalidArgument, StoreMoved
from localqueue.message import QueueMessage
from localqueue.queue import PersistentQueue
from localqueue.testing import ManualClock
from tests.unit.queue.phrases import Background, NewQueue, Queue, WatchedSQLiteStore


def test_task_done_acknowledges_what_get_returned(queue: Queue) -> None:
    queue.put("a")

    assert queue.get() == "a"
    assert queue.stats().inflight == 1
    queue.task_done()

    assert queue.stats().total == 0


def test_task_done_takes_the_oldest_first(queue: Queue) -> None:
    first, second = queue.put_many(["first", "second"])
    queue.get()
    queue.get()

    queue.task_done()

    assert queue.inspect(first.id) is None
    assert queue.inspect(second.id) is not None


def test_a_thread_settles_its_own_message_first(queue: Queue) -> None:
    mine, theirs = queue.put_many(["mine", "theirs"])
    assert queue.get() == "mine"

    def work() -> None:
        assert queue.get() == "theirs"
        queue.task_done()

    Background(work).result()

    assert queue.inspect(theirs.id) is None
    assert queue.inspect(mine.id) is not None


def test_a_thread_without_a_message_settles_the_oldest_of_all(queue: Queue) -> None:
    queue.put("a")
    queue.get()

    Background(queue.task_done).result()

    assert queue.stats().total == 0


def test_task_done_once_too_often_is_refused(queue: Queue) -> None:
    queue.put("a")
    queue.get()
    queue.task_done()

    with pytest.raises(InvalidArgument, match=r"task_done\(\) called too many times"):
        queue.task_done()


def test_messages_of_get_message_are_not_for_task_done(queue: Queue) -> None:
    queue.put("a")
    queue.get_message()

    with pytest.raises(InvalidArgument):
        queue.task_done()


@pytest.mark.parametrize("settle", ["ack", "release", "dead_letter"])
def test_a_message_that_was_settled_otherwise_is_done(queue: Queue, settle: str) -> None:
    message = queue.put("a")
    queue.get()
    current = queue.inspect(message.id)
    assert isinstance(current, QueueMessage)

    assert getattr(queue, settle)(current)

    queue.join()
    with pytest.raises(InvalidArgument):
        queue.task_done()


def test_join_returns_at_once_when_nothing_was_taken(queue: Queue) -> None:
    queue.put("waits")

    Background(queue.join).result()


def test_join_waits_until_everything_that_was_taken_is_done(queue: Queue) -> None:
    queue.put_many(["a", "b"])
    queue.get()
    queue.get()
    joined = Background(queue.join)

    queue.task_done()
    assert joined.is_running()
    queue.task_done()

    joined.result()


def test_a_purge_ends_a_join(queue: Queue) -> None:
    queue.put("a")
    queue.get()
    joined = Background(queue.join)

    queue.purge()

    joined.result()


def test_join_is_about_this_object(queue: Queue, new_queue: NewQueue) -> None:
    queue.put("a")
    new_queue().get()

    Background(queue.join).result()


def test_task_done_of_a_lost_lease_takes_nothing_from_the_new_owner(
    queue: Queue, new_queue: NewQueue, clock: ManualClock
) -> None:
    queue.put("a")
    queue.get()
    clock.advance(30)
    owner = new_queue()
    message = owner.get_message()

    queue.task_done()

    assert owner.ack(message)


def test_each_delivery_of_a_message_is_done_by_itself(queue: Queue, clock: ManualClock) -> None:
    queue.put("a")
    queue.get()
    clock.advance(30)
    queue.get()

    queue.task_done()
    assert queue.stats().inflight == 1, "the first delivery was over already"
    queue.task_done()

    assert queue.stats().total == 0
    with pytest.raises(InvalidArgument):
        queue.task_done()


def test_an_operators_id_settles_every_delivery(queue: Queue, clock: ManualClock) -> None:
    message = queue.put("a")
    queue.get()
    clock.advance(30)
    queue.get()

    assert queue.ack(message.id)

    queue.join()
    with pytest.raises(InvalidArgument):
        queue.task_done()


def test_a_task_done_that_failed_can_be_repeated(file_store: WatchedSQLiteStore) -> None:
    queue: Queue = PersistentQueue("jobs", store=file_store)
    queue.put("a")
    queue.get()
    away = file_store.path.rename(file_store.path.with_name("away"))

    with pytest.raises(StoreMoved):
        queue.task_done()
    away.rename(file_store.path)
    queue.task_done()

    assert queue.stats().total == 0
