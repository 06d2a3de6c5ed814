"""When replays have put messages into a queue: records of the store, kept for good.

What a replay puts comes to the queue as any other message, and its events do not tell it apart. So
a window that has the time of an earlier replay in it has messages that are copies of others, and
replaying those too would put both. The records say when that was.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import quote

from localqueue.clock import StoreTime
from localqueue.spark.pipeline.replaying.putting import Counts
from localqueue.spark.pipeline.replaying.window import Window
from localqueue.stores.protocol import QueueStore
from localqueue.stores.records import RecordChange

KIND = "replay"


@dataclass(frozen=True, slots=True)
class Run:
    """A replay that put something into a queue, or may have."""

    key: str
    queue: str
    name: str
    began: float
    ended: float | None
    """None while it runs, and for one that was killed, until it is run again to its end."""

    def change(self) -> RecordChange:
        value = {"queue": self.queue, "name": self.name, "began": self.began, "ended": self.ended}
        return RecordChange(KIND, self.key, json.dumps(value).encode())


class Runs:
    """The records of one store."""

    def __init__(self, store: QueueStore, when: StoreTime) -> None:
        self._store, self._when = store, when

    def into(self, queue: str) -> list[Run]:
        prefix, after, found = _prefix(queue), "", list[Run]()
        while page := self._store.scan_records(
            KIND, prefix=prefix, after=after, now=self._when.now
        ):
            found += [Run(record.key, **json.loads(record.value)) for record in page]
            after = page[-1].key
        return found

    def inside(self, window: Window, queues: Iterable[str]) -> list[tuple[str, datetime, datetime]]:
        """The queues into which a replay put messages in the window, and from when to when."""
        now = self._when.now()
        return [
            (run.queue, *times)
            for queue in queues
            for run in self.into(queue)
            if window.touches(*(times := (_at(run.began), _at(run.ended or now))))
        ]

    @contextmanager
    def running(self, queues: Iterable[str], name: str, counts: Counts) -> Iterator[None]:
        """Around puts into these queues: the time is recorded before the first of them.

        When the block ends well, it is known what a killed run of this name may have put, and if
        this one has put nothing, it was none.
        """
        left, these = list[Run](), list[Run]()
        for queue in queues:
            left += [run for run in self.into(queue) if run.name == name and run.ended is None]
            key = f"{_prefix(queue)}{uuid.uuid4().hex}"
            these.append(Run(key, queue, name, self._when.now(), None))
        self._write([run.change() for run in these])
        yield
        ended = self._when.now()
        over = [replace(run, ended=ended).change() for run in [*left, *these]]
        if not counts.put:
            over[len(left) :] = [RecordChange(KIND, run.key, None) for run in these]
        self._write(over)

    def _write(self, changes: Sequence[RecordChange]) -> None:
        self._store.change_records(changes, now=self._when.now)


def _prefix(queue: str) -> str:
    return f"{quote(queue, safe='')}/"


def _at(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, UTC)
