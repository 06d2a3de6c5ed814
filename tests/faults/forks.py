"""Processes that fork with a queue open, and die."""

from __future__ import annotations

import os
import signal
import threading
from itertools import count
from pathlib import Path
from typing import Any

from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite import fork
from localqueue.stores.sqlite.daybook import book
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.faults.nursery import say, say_and_wait

TIMEOUT = 0.3
NOTED = 5
"""Puts of a parent before it forks: most are in the daybook alone then."""
Queue = PersistentQueue[Any]


def open_queue(path: str) -> Queue:
    return PersistentQueue("jobs", store=SQLiteQueueStore(path, timeout=TIMEOUT))


def fork_in_transaction(path: str, defect: str | None) -> None:
    """Fork while another thread is inside a transaction that is not over in time.

    The child does nothing but live; it says its pid.
    """
    if defect == "KnowsNoForks":
        fork.watch = lambda one: None
    queue = _noting(path)
    inside = threading.Event()

    def stay() -> float:
        inside.set()
        signal.pause()
        return 0.0

    heartbeat = queue.store.record_worker_heartbeat
    threading.Thread(target=heartbeat, args=("jobs", "w1"), kwargs={"now": stay}).start()
    inside.wait()
    child = os.fork()
    if not child:
        signal.pause()
    say(child)
    signal.pause()


def fork_and_work(path: str, children: int, each: int) -> None:
    """Fork with the queue open, and put in the parent and in its children at the same time.

    Every put is told when it was answered; the parent goes on until it is killed.
    """
    queue = _noting(path)
    for number in range(children):
        if not os.fork():
            for step in range(each):
                queue.put([f"child {number}", step])
            os._exit(0)
    say_and_wait("forked")
    for step in count(NOTED):
        queue.put(["parent", step])
        say(step)


def _noting(path: str) -> Queue:
    book.WARM_UP = 0
    queue = open_queue(path)
    for step in range(NOTED):
        queue.put(["parent", step])
    assert Path(f"{path}-daybook").exists()
    return queue
