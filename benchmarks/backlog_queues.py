"""Queues with a backlog: alone, behind delayed or held messages, and beside a longer queue."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.values import job
from localqueue import PersistentQueue
from localqueue.clock import SYSTEM_CLOCK, StoreTime
from localqueue.message import QueueMessage
from localqueue.policies.ordering import OrderingKeys, PriorityOrdering
from localqueue.stores.sqlite.store import SQLiteQueueStore

NAME = "jobs"
BUSY_KEY = "busy"
A_DAY = 86_400.0
"""No lease ends and no delay is over while it is measured."""
CHUNK = 5000
DEAD_LETTERS = 20
TAKEN = 100


class Backlog:
    """A filled queue, its file, and what the calls need to know of it."""

    def __init__(self, path: Path, **policies: Any) -> None:
        self.path = path
        self.store = SQLiteQueueStore(path, durability="relaxed")
        self.queue = self.another_queue(NAME, **policies)
        self.when = StoreTime(SYSTEM_CLOCK, self.store.open_clock(SYSTEM_CLOCK))
        self.somewhere: Iterator[str] = iter(())
        """Ids of waiting messages, far from each other, again and again."""
        self.behind_key: deque[str] = deque()
        """Ids of the messages of the busy key, in its order."""
        self.late = ""
        """A position in the journal that 100 events or more come after."""

    def another_queue(self, name: str, **policies: Any) -> PersistentQueue[Any]:
        """A queue in the same file."""
        return PersistentQueue(name, store=self.store, lease_timeout=A_DAY, **policies)

    def fill(self, waiting: int) -> None:
        """Messages that can be leased, a few dead letters, and a few that were acknowledged."""
        gone = DEAD_LETTERS + TAKEN
        ids = put_all(self.queue, waiting + gone)
        # Of the later half: the journal keeps a million events and lets go of the oldest. So many
        # that none is asked for twice in a long backlog: their pages are not in SQLite's cache.
        later = ids[len(ids) // 2 :]
        self.somewhere = itertools.cycle(later[:: max(1, len(later) // 5000)])
        self.late = self.store.journal_end()
        for message in self.queue.get_messages(DEAD_LETTERS):
            self.queue.dead_letter(message, "a handler failed")
        self.queue.ack_many(self.queue.get_messages(TAKEN))

    def lease(self) -> QueueMessage[Any]:
        return self.queue.get_message(block=False)

    def remove(self) -> None:
        """Close it and give its disk space back."""
        self.queue.close()
        self.store.close()
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)


def nothing_in_front(path: Path, waiting: int) -> Backlog:
    backlog = Backlog(path)
    backlog.fill(waiting)
    return backlog


def delayed_in_front(path: Path, waiting: int) -> Backlog:
    """A tenth more that wait for their time, of a higher priority, in a queue with a capacity."""
    backlog = Backlog(path, ordering_policy=PriorityOrdering(), maxsize=10 * waiting)
    put_all(backlog.queue, waiting // 10, delay=A_DAY, priority=9)
    backlog.fill(waiting)
    return backlog


def held_in_front(path: Path, waiting: int) -> Backlog:
    """A tenth more that wait behind one key whose first message is leased."""
    backlog = Backlog(path, ordering_policy=OrderingKeys(), maxsize=10 * waiting)
    ids = put_all(backlog.queue, waiting // 10, ordering_key=BUSY_KEY)
    assert backlog.lease().id == ids[0]
    backlog.behind_key.extend(ids[1:])
    backlog.fill(waiting)
    return backlog


def due_since_a_moment(path: Path, waiting: int) -> Backlog:
    """A tenth more whose delay is over, which no lease has met yet."""
    backlog = nothing_in_front(path, waiting)
    put_all(backlog.queue, waiting // 10, delay=0.01)
    time.sleep(0.05)
    return backlog


def beside_another(path: Path, waiting: int) -> Backlog:
    """A queue that is always short, in a file where another one has this many waiting."""
    backlog = Backlog(path)
    put_all(backlog.another_queue("long"), waiting)
    backlog.fill(1000)
    return backlog


def put_all(queue: PersistentQueue[Any], n: int, **options: Any) -> Sequence[str]:
    """Put this many; their ids."""
    return [
        message.id
        for start in range(0, n, CHUNK)
        for message in queue.put_many(map(job, range(start, min(start + CHUNK, n))), **options)
    ]
