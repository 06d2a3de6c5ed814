"""At most once: a message is removed before it is handed out."""

from __future__ import annotations

from queue import Empty

import pytest

from localqueue.errors import InvalidArgument
from localqueue.policies import AtMostOnceDelivery, OrderingKeys, QueuePolicySet
from localqueue.testing import ManualClock
from tests.unit.queue.phrases import NewQueue, Queue, WatchedStore, blocked, kinds, values


@pytest.fixture
def queue(new_queue: NewQueue) -> Queue:
    return new_queue(delivery_policy=AtMostOnceDelivery())


def test_a_message_is_gone_as_it_is_handed_out(queue: Queue, clock: ManualClock) -> None:
    queue.put("a")

    message = queue.get_message(leased_by="w1")

    assert (message.value, message.state, message.attempts) == ("a", "inflight", 1)
    assert queue.stats().total == 0
    clock.advance(3600)
    with pytest.raises(Empty):
        queue.get(block=False)


def test_there_is_nothing_left_to_settle(queue: Queue) -> None:
    queue.put("a")

    message = queue.get_message()

    assert not queue.ack(message)
    assert not queue.release(message)
    assert not queue.dead_letter(message, "too late")
    assert queue.dead_letters() == []


def test_get_remembers_nothing_for_task_done(queue: Queue) -> None:
    queue.put("a")

    assert queue.get() == "a"

    queue.join()
    with pytest.raises(InvalidArgument):
        queue.task_done()


def test_many_are_handed_out_and_removed_together(queue: Queue) -> None:
    queue.put_many(["a", "b", "c"])

    assert values(queue.get_messages(2)) == ["a", "b"]

    assert queue.stats().total == 1


def test_the_dedupe_key_is_free_again_and_the_journal_tells_the_delivery(queue: Queue) -> None:
    message = queue.put("a", dedupe_key="k")
    queue.get(leased_by="w1")

    assert not queue.put("a", dedupe_key="k").duplicate

    life = queue.history(message.id)
    assert kinds(life) == ["enqueued", "leased", "acked"]
    assert life[-1].worker == "w1"
    assert queue.stats().leases_by_worker_id == {"w1": 1}


def test_a_preset_says_the_same(new_queue: NewQueue) -> None:
    queue = new_queue(policy_set=QueuePolicySet.at_most_once())
    queue.put("a")

    queue.get()

    assert queue.stats().total == 0


def test_it_is_up_to_each_object_how_it_takes(queue: Queue, new_queue: NewQueue) -> None:
    careful = new_queue()
    queue.put_many(["a", "b"])

    leased = careful.get_message()
    queue.get()

    assert queue.stats().inflight == 1
    assert careful.ack(leased)


def test_a_taken_message_makes_room_and_hands_on_its_key(
    new_queue: NewQueue, store: WatchedStore
) -> None:
    queue = new_queue(
        maxsize=2, delivery_policy=AtMostOnceDelivery(), ordering_policy=OrderingKeys()
    )
    queue.put_many(["a", "b"], ordering_key="k")
    producer = blocked(store, lambda: queue.put("c", ordering_key="k"))

    assert queue.get() == "a"

    producer.result()
    assert [queue.get(block=False), queue.get(block=False)] == ["b", "c"]
