"""Archived messages into a queue: the driver puts them as they come, each of them once.

A message's dedupe key is made of its id and of the replay's name, and stays taken for long after it
was worked on. So whoever puts a message that was put already changes nothing, be it after a crash
or at the same time; and the store tells which ones these were.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from queue import Full
from typing import TYPE_CHECKING

from localqueue.clock import StoreTime
from localqueue.codec import encode_headers
from localqueue.errors import LocalQueueError
from localqueue.failpoints import reach
from localqueue.spark.pipeline.replaying.window import REPLAY_OF
from localqueue.spark.write.portions import Portion, chunks
from localqueue.stores.protocol import Fate, Put, QueueIsFull, QueueStore

if TYPE_CHECKING:
    from pyspark.sql import Row

AT_ONCE = 1_000
"""So many rows become puts at a time."""


@dataclass(slots=True)
class Counts:
    """How far it is."""

    put: int = 0
    already: int = 0
    """They were put by an earlier run, or by another one at this moment."""
    dropped: int = 0
    """The queue was full and lets go of what comes then."""

    @property
    def done(self) -> int:
        return self.put + self.already + self.dropped

    def add(self, fate: Fate) -> None:
        match fate:
            case Fate.STORED:
                self.put += 1
            case Fate.DUPLICATE:
                self.already += 1
            case Fate.DROPPED:
                self.dropped += 1


@dataclass(frozen=True, slots=True)
class Putting:
    """Puts rows of an archive into a store."""

    store: QueueStore
    when: StoreTime
    name: str
    orderings: Mapping[str, str]
    """How the queues are ordered that something is put into: not all take priorities and keys."""
    into: str | None
    """The queue of all of them; None for the one that each came to."""
    remember: float
    """Seconds, from the put on, for which a message is known to have been put."""
    timeout: float
    """Seconds to wait for room in a full queue."""

    def put_all(
        self, rows: Iterable[Row], counts: Counts, on_progress: Callable[[Counts], object]
    ) -> None:
        """Put them, as many at a time as one transaction takes, and count what became of them.

        ``queue.Full`` when there was no room; a note of every error says how many are put.
        """
        portion = Portion(self.store, self.when, self.timeout)
        try:
            for chunk in chunks(self._puts(rows)):
                start = 0
                while start < len(chunk):
                    some = chunk[start : start + portion.size]
                    try:
                        answers = self.store.enqueue_many(some, now=self.when.now)
                    except QueueIsFull as full:
                        portion.did_not_fit(full, len(some))
                        continue
                    for answer in answers:
                        counts.add(answer.fate)
                    start += len(some)
                    reach("replay.after-chunk")
                    on_progress(counts)
                    portion.fitted(answers)
        except Full as full:
            raise Full(f"{full}; {_sofar(counts)}") from None
        except LocalQueueError as error:
            error.add_note(_sofar(counts))
            raise

    def _puts(self, rows: Iterable[Row]) -> Iterator[Sequence[Put]]:
        waiting = iter(rows)
        while some := list(islice(waiting, AT_ONCE)):
            yield [self._put(row) for row in some]

    def _put(self, row: Row) -> Put:
        # As a tuple: names of a Row are looked up one by one.
        came_to, message_id, value, detail = row
        queue = self.into or came_to
        beside = json.loads(detail) if detail else {}
        ordering = self.orderings[queue]
        return Put(
            queue,
            value.encode(),
            beside.get("codec", "json"),
            encode_headers(beside.get("headers", {}) | {REPLAY_OF: message_id}),
            priority=beside.get("priority", 0) if ordering == "priority" else 0,
            ordering_key=beside.get("ordering_key") if ordering == "per-key" else None,
            dedupe_key=f"replay:{self.name}:{message_id}",
            dedupe_window=self.remember,
        )


def _sofar(counts: Counts) -> str:
    return f"{counts.done:,} messages are put; the same replay again puts the others"
