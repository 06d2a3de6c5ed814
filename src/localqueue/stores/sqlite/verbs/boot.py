"""Where store time stands: one offset per boot, the same for all processes of the host."""

from __future__ import annotations

from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.view import Transaction


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
    return start - steady
