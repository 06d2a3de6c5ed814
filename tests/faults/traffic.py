"""Workers that put and take messages until they are killed, and tell an oracle what they do."""

from __future__ import annotations

import random
import time
from itertools import count
from queue import Empty, Full
from typing import Any

from localqueue.message import QueueMessage
from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite.daybook import book
from localqueue.stores.sqlite.daybook.file import DaybookFile
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.faults.defects import plant
from tests.faults.oracle import Oracle

LEASE = 0.5
MAXSIZE = 300
"""Producers wait for room now and then, and little is left to drain at the end."""

Queue = PersistentQueue[Any]


def open_queue(path: str, *, bounded: bool = True, durability: Any = "full") -> Queue:
    """What is put into a bounded queue goes to the tables, otherwise into the daybook."""
    store = SQLiteQueueStore(path, durability=durability, timeout=60.0)
    maxsize = MAXSIZE if bounded else 0
    return PersistentQueue("jobs", store=store, lease_timeout=LEASE, maxsize=maxsize)


def produce(path: str, oracle: str, seed: int, bounded: bool, defect: str | None = None) -> None:
    """Put values that nobody else puts, alone and in batches."""
    plant(defect)
    told, chance = Oracle(oracle), random.Random(seed)
    tell_of_notes(told)
    queue = open_queue(path, bounded=bounded)
    for step in count():
        pause(chance)
        while not bounded and step % 50 == 0 and queue.qsize() > MAXSIZE:
            time.sleep(0.005)
        if chance.random() < 0.2:
            put(told, queue, [[seed, step, place] for place in range(chance.randrange(2, 12))])
        else:
            put(told, queue, [[seed, step]])


def tell_of_notes(told: Oracle) -> None:
    """Use the daybook from the second call on; each entry is told when it was written."""
    book.WARM_UP = 0
    append = DaybookFile.append

    def append_and_tell(file: DaybookFile, data: bytes, at: int) -> None:
        append(file, data, at)
        told.about("note", len(data))

    DaybookFile.append = append_and_tell  # type: ignore[method-assign,assignment]


def put(told: Oracle, queue: Queue, values: list[Any]) -> None:
    told.about("put", values)
    try:
        if len(values) > 1:
            messages = queue.put_many(values, timeout=1.0)
        else:
            messages = [queue.put(values[0], timeout=1.0)]
    except Full:
        return
    told.answered("put", [[message.id, message.value] for message in messages])


def consume(path: str, oracle: str, seed: int, bounded: bool, defect: str | None = None) -> None:
    """Take messages and settle them, mostly by acknowledging; leave some to their lease's end."""
    plant(defect)
    told, chance = Oracle(oracle), random.Random(seed)
    tell_of_notes(told)
    queue = open_queue(path, bounded=bounded)
    while True:
        try:
            messages = queue.get_messages(chance.choice((1, 1, 1, 8)), timeout=1.0)
        except Empty:
            continue
        told.answered("get", [[m.id, m.token, m.value] for m in messages])
        pause(chance)
        settle(told, queue, messages, chance.random())


def pause(chance: random.Random) -> None:
    """Some are killed between two calls, too: what was answered has to be there then."""
    if chance.random() < 0.3:
        time.sleep(chance.uniform(0, 0.005))


def settle(told: Oracle, queue: Queue, messages: list[QueueMessage[Any]], dice: float) -> None:
    receipts = [[message.id, message.token] for message in messages]
    if dice < 0.80:
        told.about("ack", receipts)
        told.answered("ack", receipts, queue.ack_many(messages))
    elif dice < 0.90:
        told.about("release", receipts)
        told.answered("release", receipts, [queue.release(message) for message in messages])
    elif dice < 0.95:
        told.about("dead_letter", receipts)
        answers = [queue.dead_letter(message, "planned") for message in messages]
        told.answered("dead_letter", receipts, answers)
