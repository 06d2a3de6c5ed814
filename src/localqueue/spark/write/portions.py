"""How many rows are put at a time: as many as one transaction takes, fewer into a full queue."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from queue import Full

from localqueue.clock import StoreTime
from localqueue.stores.alike import AlikeAnswers
from localqueue.stores.protocol import (
    LARGEST_BATCH,
    LARGEST_BATCH_BYTES,
    Enqueued,
    Put,
    QueueIsFull,
    QueueStore,
)

LOOK_AGAIN = 1.0
"""A waiter looks by itself this often: what time alone changes wakes nobody."""


def chunks(puts: Iterable[Sequence[Put]]) -> Iterator[list[Put]]:
    """The same puts, as many at a time as one transaction takes."""
    waiting: list[Put] = []
    size = 0
    for some in puts:
        start = 0
        while start < len(some):
            piece = some[start : start + LARGEST_BATCH - len(waiting)]
            count, added = _fitting(piece, LARGEST_BATCH_BYTES - size)
            waiting += piece[:count]
            size += added
            start += count
            if start < len(some) or len(waiting) == LARGEST_BATCH:
                yield waiting
                waiting, size = [], 0
    if waiting:
        yield waiting


def _fitting(puts: Sequence[Put], room: int) -> tuple[int, int]:
    """How many of them have no more than so many bytes together, and how many bytes those are."""
    sizes = [len(put.body) for put in puts]
    count, size = len(sizes), sum(sizes)
    while size > room:
        count -= 1
        size -= sizes[count]
    return count, size


class Portion:
    """How many rows come next: fewer when a queue is full, more after there was room for these.

    It also waits for the room.
    """

    def __init__(self, store: QueueStore, when: StoreTime, timeout: float) -> None:
        self._store = store
        self._when = when
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self.size = LARGEST_BATCH

    def fitted(self, answers: Sequence[Enqueued]) -> None:
        """These are put; pauses where the queue asks its producers for it."""
        self.size = min(LARGEST_BATCH, 2 * self.size)
        if type(answers) is not AlikeAnswers:
            pause = max([answer.delay for answer in answers], default=0.0)
            if pause > 0:
                queues = {stored.queue for a in answers for stored in a.copies or (a.message,)}
                self._wait(queues, pause)
        self._deadline = time.monotonic() + self._timeout

    def did_not_fit(self, full: QueueIsFull, rows: int) -> None:
        """Try fewer, or wait for room for one; ``queue.Full`` when there was none for too long."""
        if full.overflow != "block":
            raise Full(f"queue {full.queue!r} is full and refuses more")
        if rows > 1:
            self.size = rows // 2
            return
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise Full(f"queue {full.queue!r} had no room for {self._timeout:g} seconds")
        self._wait([full.queue], left)

    def _wait(self, queues: Collection[str], seconds: float) -> None:
        # Watched before looking, so that room made in between is not missed.
        waiter = self._store.watch(queues, "room")
        try:
            if any(map(self._is_full, queues)):
                waiter.wait(min(seconds, LOOK_AGAIN))
        finally:
            waiter.close()

    def _is_full(self, queue: str) -> bool:
        found = self._store.settings(queue)
        maxsize = 0 if found is None else found[0].maxsize
        return 0 < maxsize <= self._store.waiting(queue, now=self._when.now)
