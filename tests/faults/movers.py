"""A process that goes on putting while somebody does something to its file."""

from __future__ import annotations

import threading
import time
from itertools import count
from typing import Any

from localqueue.errors import StoreError
from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite import connection
from localqueue.stores.sqlite.daybook import book
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.faults.nursery import say, say_and_wait

THREADS = 3
AFTERWARDS = 5
"""How often each thread tries again when it was refused."""


def keep_putting(path: str, durability: Any, defect: str | None) -> None:
    """Say of each put when it began and whether it was stored; end after some that were not.

    With a defect it may never be refused, and ends by itself.
    """
    book.WARM_UP = 0
    if defect == "DoesNotLook":
        connection.check_same_file = lambda path, inode: None
    queue: PersistentQueue[Any] = PersistentQueue(
        "jobs", store=SQLiteQueueStore(path, durability=durability, timeout=20.0)
    )
    end = time.monotonic() + (20.0 if defect is None else 1.0)
    running = [threading.Thread(target=_put, args=(queue, who, end)) for who in range(THREADS)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def _put(queue: PersistentQueue[Any], who: int, end: float) -> None:
    refused = 0
    for step in count():
        began = time.monotonic()
        try:
            queue.put([who, step])
        except StoreError as error:
            refused += 1
            say([type(error).__name__, began, str(error)])
        else:
            say(["stored", began, [who, step]])
        if refused > AFTERWARDS or began > end:
            return


def note(path: str, values: list[Any]) -> None:
    """Put them one by one, say how many, and live on with most of them in the daybook alone."""
    book.WARM_UP = 0
    queue: PersistentQueue[Any] = PersistentQueue("jobs", store=SQLiteQueueStore(path))
    for value in values:
        queue.put(value)
    say_and_wait(len(values))


def put_behind_a_holder(path: str, durability: Any) -> None:
    """Wait for the lock with one put, and with another one that begins later; say both fates."""
    store = SQLiteQueueStore(path, durability=durability, timeout=20.0)
    queue: PersistentQueue[Any] = PersistentQueue("jobs", store=store)
    queue.qsize()
    say_and_wait("open")
    fates: list[str] = []
    first = threading.Thread(target=_try_put, args=(queue, "first", fates))
    first.start()
    # Until it waits for the lock.
    first.join(0.3)
    say_and_wait("waiting")
    second = threading.Thread(target=_try_put, args=(queue, "second", fates))
    second.start()
    second.join(0.3)
    say("both waiting")
    first.join()
    second.join()
    say(fates)


def _try_put(queue: PersistentQueue[Any], value: str, fates: list[str]) -> None:
    try:
        queue.put(value)
    except StoreError as error:
        fates.append(type(error).__name__)
    else:
        fates.append("stored")
