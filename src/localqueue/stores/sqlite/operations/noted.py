"""What stands in a daybook, brought into a new file beside the rows of a damaged one."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from localqueue.stores.sqlite.daybook.entries import Acks, Entry, Leases, Puts, renumbered, size
from localqueue.stores.sqlite.operations.daybook import DaybookImage, bits_of
from localqueue.stores.sqlite.operations.mend import MENDS
from localqueue.stores.sqlite.rows import plain_seal
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import ACKED, ENQUEUED, INFLIGHT, LEASED, READY


def bring_over_noted(image: DaybookImage, db: sqlite3.Connection) -> int:
    """Into tables that were saved, what is not in them yet; how many events that is."""
    mark = db.execute(SQL.read_mark, ("daybook",)).fetchone()
    # Without a mark, what may have come to its end and left the journal must not come back.
    trimmed = db.execute("SELECT coalesce(max(trimmed), 0) FROM kept").fetchone()
    entries = image.entries(bits_of(db), (mark or trimmed)[0])
    if not entries or (mark is None and _are_posted(db, entries)):
        return 0
    first, end = entries[0].seq, entries[-1].seq + size(entries[-1])
    numbers = {"first": first, "last": end - 1}
    # When events before them are missing they keep their numbers: those may be in use elsewhere.
    if db.execute(MENDS.use_of_numbers, numbers).fetchone() is not None:
        (newest,) = db.execute(MENDS.newest_number).fetchone()
        entries = renumbered(entries, newest + 1 - first)
    for entry in entries:
        _write(db, entry)
    return end - first


def _write(db: sqlite3.Connection, entry: Entry) -> None:
    """Row by row, whether the messages of a lease or an ack were saved or not."""
    events: list[tuple[object, ...]] = []
    match entry:
        case Puts(seq, at, queue, bodies):
            for number, body in enumerate(bodies, seq):
                row = (number, queue, at, plain_seal(body, number, queue), body)
                db.execute(SQL.add_plain_message, row)
                events.append((number, None, ENQUEUED, None, READY, None, None, None, None, None))
        case Leases(seq, at, queue, numbers, until, worker, liveness, note):
            for token, number in enumerate(numbers, seq):
                lease = (token, until, worker, liveness, at, note, number)
                db.execute(SQL.lease_plain_message, lease)
                events.append(
                    (number, number, LEASED, READY, INFLIGHT, 1, worker, None, None, None)
                )
        case Acks(seq, at, queue, numbers, tokens, created_at, positions, leased_at, worker):
            ends = zip(numbers, tokens, created_at, positions, strict=True)
            for number, token, created, position in ends:
                db.execute(SQL.delete_message, (number,))
                waited = max(0.0, leased_at - position)
                events.append(
                    (number, token, ACKED, INFLIGHT, None, 1, worker, created, leased_at, waited)
                )
    rows = [(n, entry.at, entry.queue, *event) for n, event in enumerate(events, entry.seq)]
    db.executemany(SQL.add_noted_event, rows)


def _are_posted(db: sqlite3.Connection, entries: Sequence[Entry]) -> bool:
    """Whether the tables have something of them: all are posted at once."""
    for entry in entries:
        numbers = {"first": entry.seq, "last": entry.seq + size(entry) - 1, "at": entry.at}
        if db.execute(MENDS.signs_of_posting, numbers).fetchone() is not None:
            return True
    return False
