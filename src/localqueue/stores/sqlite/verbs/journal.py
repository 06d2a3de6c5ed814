"""Reading the journal: in commit order, by message, and on behalf of registered readers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from heapq import merge
from itertools import islice
from typing import Any

from localqueue.errors import InvalidArgument, JournalForeign, JournalTrimmed
from localqueue.stores.protocol import JournalEvent, JournalReader
from localqueue.stores.sqlite.rows import read_json
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import ACTORS, KINDS, STATE_NAMES
from localqueue.stores.sqlite.verbs.find import find_number, find_row
from localqueue.stores.sqlite.view import QueueRow, Transaction, View

LONGEST_LIFE = 10_000
MOST_MERGED = 32
"""Queues whose events are looked for one by one, with a statement for each. More of them are picked
out of all events."""


def journal(
    view: View, queues: Sequence[str] | None, after: str | None, limit: int
) -> list[JournalEvent]:
    """Events after a position; of some queues, or of all."""
    wanted = None if queues is None else {row.id for name in queues if (row := view.queue(name))}
    seq = 0 if after is None else position_seq(view, after)
    if after is not None:
        _check_not_trimmed(view, seq, wanted)
    if wanted is None:
        rows = view.db.execute(SQL.events_after, (seq, limit)).fetchall()
    else:
        rows = _rows_of_queues(view, sorted(wanted), seq, limit)
    return [_event(view, row) for row in rows]


def _rows_of_queues(view: View, queues: list[int], seq: int, limit: int) -> list[tuple[Any, ...]]:
    """From span to span of each queue up to their mark, then from the tail that all share."""
    (spanned,) = view.db.execute(SQL.read_mark, ("span",)).fetchone()
    rows: list[tuple[Any, ...]] = []
    if seq < spanned and len(queues) <= MOST_MERGED:
        found = [view.db.execute(SQL.folded_events, (queue, seq, limit)) for queue in queues]
        # A row begins with its seq, which no other has.
        rows = list(islice(merge(*found), limit))
        seq = spanned
    if len(rows) < limit:
        rest = (seq, json.dumps(queues), limit - len(rows))
        rows += view.db.execute(SQL.events_of_queues, rest)
    return rows


def journal_end(view: View) -> str:
    return view.file.identity.public(view.start_seq)


def history(view: View, queue: str, message_id: str) -> list[JournalEvent]:
    """A life, oldest event first, as far as the journal has it."""
    row = view.queue(queue)
    number = None if row is None else find_number(view, row, message_id)
    if row is None or number is None:
        return []
    living = find_row(view, row, number)
    seq = _end(view, row, number) if living is None else living.last
    life: list[JournalEvent] = []
    while seq is not None and len(life) < LONGEST_LIFE:
        found = view.db.execute(SQL.read_event, (seq,)).fetchone()
        if found is None:
            break
        life.append(_event(view, found))
        seq = found[4]
    return life[::-1]


def _end(view: View, queue: QueueRow, number: int) -> int | None:
    """The event that ended a life: in the tail of the journal, or listed by a fold."""
    (folded,) = view.db.execute(SQL.read_mark, ("fold",)).fetchone()
    found = view.db.execute(SQL.late_end, (folded, number, queue.id)).fetchone()
    if found is None:
        found = view.db.execute(SQL.listed_end, (number, queue.id)).fetchone()
    return None if found is None else int(found[0])


def position_seq(view: View, position: str) -> int:
    seq = view.file.identity.seq(position) if isinstance(position, str) else None
    if seq is None or seq > view.start_seq:
        raise JournalForeign(f"the journal position {position!r} does not belong to this store")
    return seq


def register_reader(
    tx: Transaction, name: str, position: str | None, max_age: float, missing_ok: bool
) -> JournalReader:
    """Keep events after the position for this reader; an existing one keeps its own position."""
    found = tx.db.execute(SQL.find_reader, (name,)).fetchone()
    if found is not None and position is None:
        seq = found[1]
    elif position is None:
        # Where nothing after it is missing, in any queue that has a journal.
        first = tx.db.execute(SQL.first_event).fetchone()
        seq = max(first[0] - 1 if first else 0, _trimmed(tx, None))
    else:
        seq = position_seq(tx, position)
        if not missing_ok:
            _check_not_trimmed(tx, seq, None)
    tx.db.execute(SQL.write_reader, (name, seq, tx.now, max_age))
    return JournalReader(name, tx.file.identity.public(seq), tx.now, max_age)


def commit_reader(tx: Transaction, name: str, position: str) -> None:
    """The reader has everything up to the position."""
    seq = position_seq(tx, position)
    if tx.db.execute(SQL.move_reader, (seq, tx.now, name)).rowcount == 0:
        raise InvalidArgument(f"no journal reader is registered as {name!r}")


def drop_reader(tx: Transaction, name: str) -> bool:
    return tx.db.execute(SQL.delete_reader, (name,)).rowcount > 0


def readers(view: View) -> list[JournalReader]:
    return [
        JournalReader(name, view.file.identity.public(seq), updated_at, max_age)
        for name, seq, updated_at, max_age in view.db.execute(SQL.readers)
    ]


def _check_not_trimmed(view: View, seq: int, wanted: set[int] | None) -> None:
    trimmed = _trimmed(view, wanted)
    if trimmed > seq:
        raise JournalTrimmed(
            f"the journal was trimmed up to {view.file.identity.public(trimmed)};"
            " events after the asked position are gone"
        )


def _trimmed(view: View, wanted: set[int] | None) -> int:
    """Up to where events of these queues are gone, or of all that have a journal."""
    return max(
        (
            trimmed
            for queue, _, settings, _, trimmed, _ in view.db.execute(SQL.kept)
            if (view.file.parse_settings(settings).journal if wanted is None else queue in wanted)
        ),
        default=0,
    )


def _event(view: View, row: tuple[Any, ...]) -> JournalEvent:
    (
        seq, at, queue, message, _, kind, left, entered, n, attempt, worker, by, error_type,
        error_text, fingerprint, enqueued_at, leased_at, waited, body, detail,
    ) = row  # fmt: skip
    return JournalEvent(
        position=view.file.identity.public(seq),
        at=at,
        queue=view.queue_name(queue),
        message_id=None if message is None else view.file.identity.public(message),
        kind=KINDS[kind],
        from_state=None if left is None else STATE_NAMES[left],
        to_state=None if entered is None else STATE_NAMES[entered],
        n=n,
        attempt=attempt,
        worker=worker,
        by=ACTORS[by],
        error_type=error_type,
        error_text=error_text,
        fingerprint=fingerprint,
        enqueued_at=enqueued_at,
        leased_at=leased_at,
        waited=waited,
        ran=None if leased_at is None else max(0.0, at - leased_at),
        body=body,
        detail=read_json(detail),
    )
