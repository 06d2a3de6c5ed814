"""The leases of one worker, by its liveness name: held for it, or ended when it is dead.

They are found in a read, so that nobody waits while the leases of all others are walked, and are
changed a slice at a time. In between a lease may end in another way: its token tells.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from localqueue.stores.sqlite.rows import MessageRow, public_id
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import BY_SWEEP, INFLIGHT, LEASE_EXPIRED
from localqueue.stores.sqlite.verbs.settle import extend_lease
from localqueue.stores.sqlite.verbs.sweep import SLICE, end_lease
from localqueue.stores.sqlite.view import Transaction, View


class Held(NamedTuple):
    """A lease as it was found."""

    message: int
    token: int


def leases_under(view: View, liveness: str) -> list[Held]:
    """All leases of this name, of every queue, those that end first before the others."""
    return [
        Held._make(found)
        for queue, _ in view.db.execute(SQL.queue_names).fetchall()
        for found in view.db.execute(SQL.leases_under, (queue, liveness))
    ]


def slices(leases: Sequence[Held]) -> Iterator[Sequence[Held]]:
    return (leases[at : at + SLICE] for at in range(0, len(leases), SLICE))


def extend_slice(tx: Transaction, leases: Sequence[Held], timeout: float) -> int:
    """Hold those that are still held, and would end before; how many are held."""
    until = tx.now + timeout
    rows = list(_still_held(tx, leases))
    for row in rows:
        if row.due_at is not None and row.due_at < until:
            extend_lease(tx, row, until, row.note, BY_SWEEP)
    return len(rows)


def end_slice(tx: Transaction, leases: Sequence[Held], running: AbstractSet[str]) -> int:
    """End those that are still held; only what was running is charged with a crash."""
    ended = 0
    for row in _still_held(tx, leases):
        queue = tx.queue_by_number(row.queue)
        crashed = public_id(tx.file.identity, row) in running
        end_lease(tx, queue, row, LEASE_EXPIRED, crashed=crashed)
        ended += 1
    return ended


def _still_held(tx: Transaction, leases: Sequence[Held]) -> Iterator[MessageRow]:
    tx.write_messages()
    tokens = dict(leases)
    ids = json.dumps([lease.message for lease in leases])
    for row in map(MessageRow._make, tx.db.execute(SQL.message_rows, (ids,)).fetchall()):
        if row.state == INFLIGHT and row.token == tokens[row.id]:
            yield row
