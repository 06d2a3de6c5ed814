"""A get that waits: what wakes it, and how long it waits."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from queue import Empty

import pytest

from localqueue.clock import SYSTEM_CLOCK, Now
from localqueue.errors import StoreClosed, StoreMoved
from localqueue.message import QueueMessage
from localqueue.policies import OrderingKeys
from localqueue.queue import PersistentQueue
from localqueue.stores.protocol import LeaseRequest, Put, StoredMessage
from localqueue.testing import ManualClock
from tests.unit.queue.phrases import (
    Background,
    NewQueue,
    Queue,
    WatchedMemoryStore,
    WatchedSQLiteStore,
    WatchedStore,
    blocked,
    values,
)

pytestmark = pytest.mark.usefixtures("only_signals_wake")


class PutsBetween(WatchedMemoryStore):
    """Somebody puts a message just after a get found nothing, and before it waits."""

    def __init__(self) -> None:
        super().__init__()
        self.empty_handed = 0

    def lease(self, request: LeaseRequest, *, now: Now) -> Sequence[StoredMessage]:
        found = super().lease(request, now=now)
        if not found:
            self.empty_handed += 1
            if self.empty_handed == 2:
                self.enqueue_many([Put("jobs", b'"just now"')], now=now)
        return found


def test_a_put_between_looking_and_waiting_is_not_missed() -> None:
    store = PutsBetween()
    queue: Queue = PersistentQueue("jobs", store=store)

    assert Background(queue.get).result() == "just now"
    assert store.empty_handed == 2


def test_a_put_of_another_thread_wakes_it(queue: Queue, store: WatchedStore) -> None:
    waiting = blocked(store, queue.get)

    queue.put("a")

    assert waiting.result() == "a"


def test_a_put_of_another_object_wakes_it(
    queue: Queue, new_queue: NewQueue, store: WatchedStore
) -> None:
    waiting = blocked(store, queue.get)

    new_queue().put("a")

    assert waiting.result() == "a"


def test_a_put_of_another_store_object_on_the_same_file_wakes_it(
    file_store: WatchedSQLiteStore,
) -> None:
    queue: Queue = PersistentQueue("jobs", store=file_store)
    waiting = blocked(file_store, queue.get)

    with PersistentQueue[str]("jobs", store_path=file_store.path) as other:
        other.put("a")

    assert waiting.result() == "a"


def test_a_put_of_another_process_wakes_it(file_store: WatchedSQLiteStore) -> None:
    queue: Queue = PersistentQueue("jobs", store=file_store)
    waiting = blocked(file_store, queue.get)

    program = "import sys; from localqueue import PersistentQueue as Q; "
    program += "Q('jobs', store_path=sys.argv[1]).put('from afar')"
    subprocess.run([sys.executable, "-c", program, str(file_store.path)], check=True, timeout=60)

    assert waiting.result() == "from afar"


def test_a_batch_wakes_as_many_as_it_has_messages_for(queue: Queue, store: WatchedStore) -> None:
    waiting = [blocked(store, queue.get) for _ in range(4)]

    queue.put_many(range(4))

    assert sorted(one.result() for one in waiting) == [0, 1, 2, 3]


def test_one_message_goes_to_one_of_those_who_wait(queue: Queue, store: WatchedStore) -> None:
    waiting = [blocked(store, queue.get) for _ in range(3)]

    queue.put("only")
    queue.put_many(["second", "third"])

    assert sorted(one.result() for one in waiting) == ["only", "second", "third"]
    assert queue.stats().inflight == 3


def test_a_delayed_message_wakes_it_when_it_is_due(
    new_queue: NewQueue, store: WatchedStore
) -> None:
    queue = new_queue(clock=SYSTEM_CLOCK)
    due = queue.put("later", delay=0.3).available_at
    waiting = blocked(store, queue.get_message)

    message = waiting.result()

    assert message.value == "later"
    assert message.attempt_history[-1]["at"] >= due


def test_time_that_a_test_lets_pass_wakes_it(
    queue: Queue, store: WatchedStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localqueue.calls.patience.LOOK_AGAIN", 0.05)
    queue.put("in an hour", delay=3600)
    waiting = blocked(store, queue.get)

    clock.advance(3600)

    assert waiting.result() == "in an hour"


def test_the_end_of_somebodys_lease_wakes_it(new_queue: NewQueue, store: WatchedStore) -> None:
    queue = new_queue(clock=SYSTEM_CLOCK, lease_timeout=0.3)
    queue.put("a")
    queue.get_message()

    message = blocked(store, queue.get_message).result()

    assert (message.value, message.attempts) == ("a", 2)


def test_a_released_message_wakes_it(queue: Queue, store: WatchedStore) -> None:
    queue.put("a")
    message = queue.get_message()
    waiting = blocked(store, queue.get)

    queue.release(message)

    assert waiting.result() == "a"


def test_a_requeued_dead_letter_wakes_it(queue: Queue, store: WatchedStore) -> None:
    message = queue.put("a")
    queue.dead_letter(message)
    waiting = blocked(store, queue.get)

    queue.requeue_dead(message)

    assert waiting.result() == "a"


def test_the_end_of_a_pause_wakes_it(queue: Queue, store: WatchedStore) -> None:
    queue.put("a")
    queue.pause()
    waiting = blocked(store, queue.get)

    queue.resume()

    assert waiting.result() == "a"


def test_the_turn_of_the_next_message_of_a_key_wakes_it(
    new_queue: NewQueue, store: WatchedStore
) -> None:
    queue = new_queue(ordering_policy=OrderingKeys())
    queue.put_many(["first", "second"], ordering_key="k")
    first = queue.get_message()
    waiting = blocked(store, queue.get)

    queue.ack(first)

    assert waiting.result() == "second"


def test_a_batch_is_given_what_is_there_and_does_not_wait_for_more(
    queue: Queue, store: WatchedStore
) -> None:
    waiting = blocked(store, lambda: queue.get_messages(10))

    queue.put("only")

    assert values(waiting.result()) == ["only"]


@pytest.mark.parametrize("seconds", [0.05, 0.3])
def test_it_waits_as_long_as_it_may_and_then_raises_empty(queue: Queue, seconds: float) -> None:
    queue.empty()
    began = time.monotonic()

    with pytest.raises(Empty):
        queue.get(timeout=seconds)

    assert time.monotonic() - began >= seconds


def test_it_waits_for_a_message_of_its_own_queue(
    queue: Queue, new_queue: NewQueue, store: WatchedStore
) -> None:
    other = new_queue("other")
    waiting = blocked(store, queue.get)

    other.put("not yours")
    queue.put("yours")

    assert waiting.result() == "yours"
    assert other.get() == "not yours"


def test_closing_its_store_ends_the_wait(queue: Queue, store: WatchedStore) -> None:
    waiting = blocked(store, queue.get)

    store.close()

    with pytest.raises(StoreClosed):
        waiting.result()


def test_a_queue_that_was_closed_while_it_waited_takes_no_message(
    queue: Queue, new_queue: NewQueue, store: WatchedStore
) -> None:
    waiting: Background[QueueMessage[object]] = blocked(store, queue.get_message)

    queue.close()
    new_queue().put("for others")

    with pytest.raises(StoreClosed):
        waiting.result()
    assert new_queue().get(block=False) == "for others"


def test_a_file_that_is_deleted_ends_the_wait(
    file_store: WatchedSQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody tells of it: who waits finds out at its next look.
    monkeypatch.setattr("localqueue.calls.patience.LOOK_AGAIN", 0.05)
    queue: Queue = PersistentQueue("jobs", store=file_store)
    waiting = blocked(file_store, queue.get)

    file_store.path.unlink()

    with pytest.raises(StoreMoved):
        waiting.result()
