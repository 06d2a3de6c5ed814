"""Where store time stands: one offset per boot, the same for all processes of the host."""

from __future__ import annotations

import secrets

from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import BY_SWEEP, COUNTED, STATE_NAMES
from localqueue.stores.sqlite.view import Transaction

LEAP = 2**20
"""More events than can wait for a sync."""
APART = 2**40
"""Another power cut may take back all of a boot, its leap as well, and the next boot begins where
that one began: so many places there are to leap to, that they do not meet."""


def open_clock(tx: Transaction, boot_id: str, steady: float, wall: float) -> float:
    """The offset from the steady clock to store time; a new boot goes on where the last ended."""
    found = tx.db.execute(SQL.read_clock).fetchone()
    if found is not None and found[0] == boot_id:
        return float(found[1])
    newest = tx.db.execute(SQL.last_event_time).fetchone()
    start = wall if newest is None else max(wall, newest[0])
    tx.db.execute(SQL.write_clock, (boot_id, start - steady))
    if found is not None:
        # Whoever held a lease is gone with the old boot.
        tx.db.execute(SQL.free_all_leases, (start,))
        tx.file.last_sweep.clear()
        _leap(tx, start)
    return start - steady


def _leap(tx: Transaction, now: float) -> None:
    """A power cut may have taken back the newest events; others may remember their seqs.

    They were receipts of leases, and without full durability also ids of messages: given out a
    second time, they would mean something else.
    """
    for number, _ in tx.db.execute(SQL.queue_names).fetchall()[:1]:
        counts = dict(zip(STATE_NAMES, tx.states(number), strict=True))
        tx.now = now
        tx.leap(LEAP + secrets.randbelow(APART))
        tx.event(COUNTED, number, by=BY_SWEEP, detail=counts)
