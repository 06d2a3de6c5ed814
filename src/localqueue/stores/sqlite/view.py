"""What verbs work on: a snapshot to read, or a transaction to write."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from localqueue.errors import StoreCorrupt
from localqueue.outcome import LONGEST_ERROR_TEXT, fingerprint
from localqueue.stores.settings import QueueSettings
from localqueue.stores.sqlite.counts import Counts
from localqueue.stores.sqlite.identity import Identity
from localqueue.stores.sqlite.rows import MessageRow
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import BY_WORKER, PURGED
from localqueue.stores.sqlite.tally import Happened, Tally

NEW_QUEUES = 0
"""Told like a queue's number when a queue is made: its waiters could not know its number before."""
MOST_KNOWN = 1000
"""Queues whose rows are remembered from one transaction to the next."""


class QueueRow(NamedTuple):
    """A queue as the transaction sees it."""

    id: int
    name: str
    version: int
    settings: QueueSettings
    topic: int | None
    has_no_wishes: bool
    """Whether a put that asks for nothing needs nothing but its row and its event."""


def _has_no_wishes(settings: QueueSettings) -> bool:
    return (
        settings.fanout is None
        and settings.ttl is None
        and not settings.maxsize
        and not settings.journal_payloads
    )


@dataclass(slots=True)
class FileState:
    """What a process knows of a file between transactions."""

    identity: Identity
    hand: sqlite3.Cursor
    """Of the connection that writes, kept for statements that are run one at a time in every call:
    making a cursor for each of them takes as long as binding its values."""
    run_folder: Path | None = None
    """Where workers leave signs of life; None without a file."""
    counts: Counts = field(default_factory=Counts)
    last_sweep: dict[int, float] = field(default_factory=dict)
    """When each queue was last swept."""
    folded: int = 0
    newest: float = float("-inf")
    """The latest time of a transaction: what a reader without a clock may take for now."""
    upto: int | None = None
    """The newest event, while no other process can have written since; None when one can."""
    known: tuple[int, dict[str, QueueRow]] = (-1, {})
    """Rows of queues as of an event. Whatever changes a row is an event, so as long as that one is
    the newest they are right; the dict is replaced, never changed."""
    _settings: dict[str, QueueSettings] = field(default_factory=dict)

    def parse_settings(self, text: str) -> QueueSettings:
        settings = self._settings.get(text)
        if settings is None:
            try:
                settings = QueueSettings(**json.loads(text))
            except (TypeError, ValueError) as error:
                raise StoreCorrupt(f"the settings of a queue cannot be read: {error}") from error
            self._settings[text] = settings
        return settings


class View:
    """A consistent state of the file, for reading."""

    __slots__ = ("_known", "_names", "_queues", "db", "file", "start_seq")

    def __init__(
        self, db: sqlite3.Connection, file: FileState, start_seq: int | None = None
    ) -> None:
        self.db = db
        self.file = file
        self._queues: dict[str, QueueRow] = {}
        self._names: dict[int, str] = {}
        if start_seq is None:
            newest = db.execute(SQL.last_seq).fetchone()
            start_seq = newest[0] if newest else 0
        self.start_seq: int = start_seq
        """The newest committed event."""
        seq, known = file.known
        self._known = known if seq == start_seq else {}

    def queue(self, name: str) -> QueueRow | None:
        """The queue's row, or None when it was never used."""
        known = self._known.get(name) or self._queues.get(name)
        if known is None:
            found = self.db.execute(SQL.find_queue, (name,)).fetchone()
            if found is None:
                return None
            number, version, settings, topic = found
            parsed = self.file.parse_settings(settings)
            known = QueueRow(number, name, version, parsed, topic, _has_no_wishes(parsed))
            self._queues[name] = known
            self._names[number] = name
        return known

    def queue_name(self, number: int) -> str:
        name = self._names.get(number)
        if name is None:
            found = self.db.execute(SQL.queue_by_id, (number,)).fetchone()
            if found is None:
                raise StoreCorrupt(
                    f"a message belongs to a queue number {number} that is not there"
                )
            name = self._names[number] = str(found[0])
        return name

    def queue_by_number(self, number: int) -> QueueRow:
        row = self.queue(self.queue_name(number))
        if row is None:
            raise StoreCorrupt(f"a message belongs to a queue number {number} that is not there")
        return row

    def states(self, queue: int) -> list[int]:
        """Counts of ready, delayed, held, inflight and dead, as committed."""
        return self.file.counts.states(self.db, queue, self.start_seq)


class Transaction(View):
    """A state that may be changed. Events and new messages are gathered and written together."""

    __slots__ = (
        "_changes",
        "_commit",
        "_deleted",
        "_from",
        "_recount",
        "events",
        "folded",
        "messages",
        "now",
        "ready",
        "room",
        "seq",
        "swept",
    )

    def __init__(
        self, db: sqlite3.Connection, file: FileState, now: float, after: Transaction | None = None
    ) -> None:
        """``after`` is the call before it in the same commit: this one goes on from there."""
        if after is None:
            View.__init__(self, db, file, file.upto)
            seq = self.start_seq
            self._commit = [Happened(seq)]
            """What happened in the calls of this commit; a fold begins a new one."""
        else:
            self.db, self.file = db, file
            self._known, self._queues, self._names = after._known, after._queues, after._names
            self.start_seq, seq = after.start_seq, after.seq
            self._commit = after._commit
        self.seq: int = seq
        self._from = seq
        self.now = now
        self.events: list[tuple[Any, ...]] = []
        self.messages: list[tuple[Any, ...]] = []
        self.ready: set[int] = set()
        """Numbers of queues that may have something to lease now: their waiters are told after the
        commit."""
        self.room: set[int] = set()
        """Those that may have room; see ``tell_room``."""
        self._deleted: list[tuple[int]] = []
        self.swept: set[int] = set()
        """Queues that were swept in this transaction."""
        self.folded: int | None = None
        self._recount = False
        self._changes = db.total_changes

    def has_changed(self) -> bool:
        """Whether there is anything to undo."""
        if self.seq != self._from or self.events or self.messages or self._deleted:
            return True
        return self.db.total_changes != self._changes

    def committed(self) -> None:
        """What the process may remember, now that it is true for everybody."""
        file, now, seq = self.file, self.now, self.seq
        if self.swept:
            file.last_sweep.update(dict.fromkeys(self.swept, now))
        if now > file.newest:
            file.newest = now
        if self.folded is not None:
            file.folded = self.folded
        known = self._known
        if self._queues:
            known = {**known, **self._queues} if len(known) < MOST_KNOWN else self._queues
        file.known = seq, known
        file.upto = seq
        # The calls of one commit have it in common: the first of them adds it all.
        file.counts.add(self._commit)
        if self._recount:
            file.counts.forget()

    def event(
        self,
        kind: int,
        queue: int,
        message: int | None = None,
        *,
        prev: int | None = None,
        left: int | None = None,
        entered: int | None = None,
        n: int = 1,
        attempt: int | None = None,
        worker: str | None = None,
        by: int = BY_WORKER,
        error: Mapping[str, Any] | None = None,
        enqueued_at: float | None = None,
        leased_at: float | None = None,
        waited: float | None = None,
        body: int | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> int:
        """Journal one transition; its seq. ``message=0`` stands for the message it makes."""
        self.seq = seq = self.seq + 1
        kinds: tuple[str | None, str | None, str | None] = (None, None, None)
        if error is not None:
            kinds = (
                error.get("type"),
                str(error.get("message"))[:LONGEST_ERROR_TEXT],
                fingerprint(dict(error)),
            )
        self.events.append(
            (
                seq, self.now, queue, seq if message == 0 else message, prev, kind, left, entered,
                n, attempt, worker, by, *kinds, enqueued_at, leased_at, waited, body,
                None if detail is None else json.dumps(detail),
            )
        )  # fmt: skip
        self._commit[-1].add((queue, left, entered, n, None), 1)
        if kind == PURGED:
            # It takes away what was counted for the workers.
            self._recount = True
        return seq

    def leap(self, n: int) -> None:
        """Leave out so many seqs: they may have been given out already."""
        self.seq += n
        self._recount = True

    def reserve(
        self,
        n: int,
        queue: int,
        left: int | None,
        entered: int | None,
        worker: str | None = None,
    ) -> int:
        """The first of n seqs, for events that one statement writes for n messages alike.

        ``worker`` is the one who leases them.
        """
        first = self.seq + 1
        self.seq += n
        happened = self._commit[-1]
        happened.upto += n
        shapes, shape = happened.shapes, (queue, left, entered, 1, worker)
        shapes[shape] = shapes[shape] + n if shape in shapes else n
        return first

    def closing(
        self,
        kind: int,
        row: MessageRow,
        entered: int | None,
        *,
        by: int = BY_WORKER,
        error: Mapping[str, Any] | None = None,
    ) -> int:
        """Journal the end of an attempt or of a life, with what tells wait and run times."""
        leased_at = row.leased_at
        return self.event(
            kind,
            row.queue,
            row.number,
            prev=row.last,
            left=row.state,
            entered=entered,
            attempt=row.attempts,
            worker=row.worker,
            by=by,
            error=error,
            enqueued_at=row.created_at,
            leased_at=leased_at,
            waited=None if leased_at is None else max(0.0, leased_at - row.pos),
        )

    def count(self, queue: int, *states: int) -> int:
        """Messages in these states, this transaction's changes included."""
        committed = self.states(queue)
        moved = sum([happened.moved(queue, *states) for happened in self._commit])
        return sum([committed[state] for state in states]) + moved

    def tell_room(self, queue: QueueRow) -> None:
        """A place became free: told where places are counted, elsewhere nobody waits for one."""
        if queue.settings.maxsize:
            self.room.add(queue.id)

    def delete(self, message: int) -> None:
        self._deleted.append((message,))

    def write_messages(self) -> None:
        """What was gathered must be written before a statement of this transaction looks for it."""
        if self.messages:
            self.db.executemany(SQL.add_message, self.messages)
            self.messages.clear()
        if self._deleted:
            self.db.executemany(SQL.delete_message, self._deleted)
            self._deleted.clear()

    def finish(self) -> None:
        """Write what was gathered."""
        if self.messages or self._deleted:
            self.write_messages()
        if self.events:
            self.db.executemany(SQL.add_event, self.events)
            self.events.clear()

    def since_fold(self, folded: int) -> Tally:
        """What happened after ``folded``, up to now."""
        shapes = self._commit[-1].shapes
        if len(self._commit) > 1:
            return Tally().add(shapes)
        return self.file.counts.since_fold(self.db, folded, self.start_seq).add(shapes)

    def fold_up_to_here(self) -> None:
        """All that happened so far is in the counters."""
        self.folded = self.seq
        self._commit.append(Happened(self.seq))

    def forget(self, queue: str) -> None:
        """The queue's row was changed: read it again."""
        self._known = {}
        self._queues.pop(queue, None)
