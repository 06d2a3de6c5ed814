"""A copy of a file goes on as a file of its own: its ids and receipts never meet the original's.

Both go on from the same seq, so without more they would give the same public ids to different
messages and the same tokens to different leases of one message. A copy is marked; whoever opens it
first gives it new bits, and lets its seq leap over all that the original may still use. Opened
twice from the same backup it leads two lives: each takes its own bits and its own leap.
"""

from __future__ import annotations

import json
import secrets
import sqlite3

from localqueue.stores.sqlite.counts import Counts
from localqueue.stores.sqlite.identity import new_bits
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import BY_SWEEP, COUNTED, STATE_NAMES

LEAP = 2**44
"""More events than the original writes in a year of 300,000 a second."""


def mark_copy(db: sqlite3.Connection, newest: int) -> None:
    """Whoever opens the file next begins a new life after ``newest``, its newest seq."""
    db.execute(SQL.mark_copied, (newest,))


def begin_new_life(db: sqlite3.Connection) -> None:
    """Inside the transaction that opens the file; does nothing unless it is marked as a copy.

    Positions, ids and receipts of the original after the copy are foreign from here on. Leases are
    over, as after a boot: their holders have them from another life, and nobody is charged.
    """
    copied = db.execute(SQL.read_mark, ("copied",)).fetchone()
    if copied is None:
        return
    (newest,) = db.execute(SQL.last_seq).fetchone() or (0,)
    (at,) = db.execute(SQL.last_event_time).fetchone() or (0.0,)
    last = max(newest, copied[0])
    db.execute(SQL.add_identity, (last + 1, new_bits()))
    seq = last + LEAP + secrets.randbelow(LEAP)
    counts = Counts()
    for number, _ in db.execute(SQL.queue_names).fetchall():
        found = counts.states(db, number, newest)
        detail = json.dumps(dict(zip(STATE_NAMES, found, strict=True)))
        db.execute(
            SQL.add_event,
            (
                seq, at, number, None, None, COUNTED, None, None, 1, None, None, BY_SWEEP, None,
                None, None, None, None, None, None, detail,
            ),
        )  # fmt: skip
        seq += 1
    db.execute(SQL.free_all_leases, (at,))
    db.execute(SQL.forget_copied)
