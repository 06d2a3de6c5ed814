"""A fast producer and a slow consumer: what each kind of backpressure does about it.

python examples/bounded_producer.py
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from queue import Full

from localqueue import (
    BoundedBackpressure,
    DropNewestBackpressure,
    DropOldestBackpressure,
    OverflowBackpressure,
    PersistentQueue,
    RejectingBackpressure,
    SQLiteQueueStore,
    ThrottlingBackpressure,
)

ROOM = 3
ITEMS = 6

Numbers = PersistentQueue[int]


def wait_for_room(store: SQLiteQueueStore) -> None:
    """The producer is as slow as its consumer, and never more than ROOM wait."""
    queue: Numbers = PersistentQueue("wait", store=store, backpressure=BoundedBackpressure(ROOM))
    producer = threading.Thread(target=lambda: [queue.put(n) for n in range(ITEMS)])
    producer.start()
    received: list[int] = []
    most = 0
    while len(received) < ITEMS:
        most = max(most, queue.qsize())
        message = queue.get_message(timeout=10)
        received.append(message.value)
        queue.ack(message)
    producer.join()
    print(f"wait      received {received}, at most {ROOM} waited: {most <= ROOM}")


def refuse(store: SQLiteQueueStore) -> None:
    queue: Numbers = PersistentQueue(
        "refuse", store=store, backpressure=RejectingBackpressure(ROOM)
    )
    refused = []
    for n in range(ITEMS):
        try:
            queue.put(n)
        except Full:
            refused.append(n)
    print(f"refuse    stored {waiting(queue)}, the producer knows of {refused}")


def drop(store: SQLiteQueueStore) -> None:
    newest: Numbers = PersistentQueue(
        "newest", store=store, backpressure=DropNewestBackpressure(ROOM)
    )
    dropped = [n for n in range(ITEMS) if newest.put(n).dropped]
    print(f"newest    stored {waiting(newest)}, let go of {dropped}")

    oldest: Numbers = PersistentQueue(
        "oldest", store=store, backpressure=DropOldestBackpressure(ROOM)
    )
    oldest.put_many(range(ITEMS))
    events = [event for event in oldest.journal() if event.kind == "dropped"]
    print(f"oldest    stored {waiting(oldest)}, the journal has {len(events)} dropped events")


def slow_down(store: SQLiteQueueStore) -> None:
    policy = ThrottlingBackpressure(ROOM, max_delay=0.05)
    queue: Numbers = PersistentQueue("throttle", store=store, backpressure=policy)
    began = time.perf_counter()
    for n in range(ITEMS):
        queue.put(n)
    slower = time.perf_counter() - began > 0.05
    print(f"throttle  stored {waiting(queue)}, and the producer was slowed down: {slower}")


def overflow(store: SQLiteQueueStore) -> None:
    policy = OverflowBackpressure(ROOM, to="spare")
    queue: Numbers = PersistentQueue("overflow", store=store, backpressure=policy)
    queue.put_many(range(ITEMS))
    spare: Numbers = PersistentQueue("spare", store=store)
    print(f"overflow  stored {waiting(queue)}, and {waiting(spare)} in the spare queue")


def waiting(queue: Numbers) -> list[int]:
    return [message.value for message in queue.peek(ITEMS)]


def main(folder: Path) -> None:
    store = SQLiteQueueStore(folder / "bounded.sqlite3")
    for show in (wait_for_room, refuse, drop, slow_down, overflow):
        show(store)
    store.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
