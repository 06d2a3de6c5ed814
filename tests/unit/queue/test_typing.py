"""The queue is generic in its value; a type checker sees it, and so do these lines."""

from __future__ import annotations

from typing import TypedDict, assert_type

from localqueue import PersistentQueue, QueueMessage, QueueStats
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.protocol import Cancelled, JournalEvent, LeaseAnswer


class Order(TypedDict):
    id: int
    item: str


def test_values_keep_their_type_through_the_queue() -> None:
    queue = PersistentQueue[Order]("orders", store=MemoryQueueStore())

    put = assert_type(queue.put({"id": 1, "item": "tea"}), QueueMessage[Order])
    assert_type(queue.put_many([{"id": 2, "item": "milk"}]), list[QueueMessage[Order]])
    assert_type(queue.peek(), list[QueueMessage[Order]])
    order = assert_type(queue.get(), Order)
    message = assert_type(queue.get_message(), QueueMessage[Order])
    value = assert_type(message.value, Order)
    assert_type(queue.extend(message), LeaseAnswer)
    assert_type(queue.cancel(put), Cancelled)
    assert_type(queue.inspect(message.id), QueueMessage[Order] | None)
    assert_type(queue.journal(), list[JournalEvent])
    assert_type(queue.stats(), QueueStats)
    assert_type(queue.ack_many([message, put.id]), list[bool])

    assert (order["item"], value["item"]) == ("tea", "milk")
