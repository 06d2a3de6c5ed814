"""The short way to lease messages that have nothing but a value: a few statements for all."""

from __future__ import annotations

import json
from collections.abc import Sequence

from localqueue.errors import StoreCorrupt
from localqueue.stores.leased import LeasedTogether
from localqueue.stores.protocol import PREFETCHED, LeaseRequest, StoredMessage
from localqueue.stores.sqlite.rows import plain_seals
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import INFLIGHT, READY
from localqueue.stores.sqlite.verbs.ack_plain import ack_in_order, is_run
from localqueue.stores.sqlite.view import QueueRow, Transaction


def lease_plain(
    tx: Transaction, queue: QueueRow, request: LeaseRequest, limit: int, most_bytes: int
) -> Sequence[StoredMessage] | None:
    """The next messages, leased.

    None, and nothing done, when one of them is not plain or not sound, or all are too large.
    """
    tx.write_messages()
    rows = tx.db.execute(SQL.plain_messages, (queue.id, limit)).fetchall()
    if not rows:
        return []
    numbers, ranks, positions, created_at, checksums, bodies, plain = zip(*rows, strict=True)
    if (
        not all(plain)
        or not _are_sound(queue.id, numbers, checksums, bodies)
        or sum(map(len, bodies)) > most_bytes
    ):
        return None
    until = tx.now + request.timeout
    lease = _lease_number if len(numbers) == 1 else lease_numbers
    token = lease(tx, queue, numbers, until, request)
    if request.remove and not ack_in_order(tx, queue, numbers, token):
        raise StoreCorrupt(f"messages of {queue.name!r} cannot be removed")
    return LeasedTogether(
        queue.name, request.worker, tx.now, until, token, tx.file.identity.publics(numbers), bodies,
        ranks, created_at, positions,
    )  # fmt: skip


def lease_numbers(
    tx: Transaction,
    queue: QueueRow,
    numbers: Sequence[int],
    until: float,
    request: LeaseRequest,
) -> int:
    """Write the leases of these messages, and their events; the first one's token."""
    worker, liveness, now = request.worker, request.liveness, tx.now
    note = PREFETCHED if request.prefetched else None
    token = tx.reserve(len(numbers), queue.id, READY, INFLIGHT, worker)
    if is_run(numbers):
        first, last = numbers[0], numbers[-1]
        tx.db.execute(SQL.add_lease_events_of_run, (token, now, worker, first, last))
        tx.db.execute(SQL.lease_run, (token, until, worker, liveness, now, first, last, note))
    else:
        ids = json.dumps(numbers)
        tx.db.execute(SQL.add_lease_events, (token, now, worker, ids))
        tx.db.execute(SQL.lease_messages, (token, until, worker, liveness, now, ids, note))
    return token


def _lease_number(
    tx: Transaction,
    queue: QueueRow,
    numbers: Sequence[int],
    until: float,
    request: LeaseRequest,
) -> int:
    """The same for one that is plain. Most calls are this one."""
    (number,), worker, now = numbers, request.worker, tx.now
    note = PREFETCHED if request.prefetched else None
    token = tx.reserve(1, queue.id, READY, INFLIGHT, worker)
    tx.db.execute(SQL.add_lease_event_of_plain, (token, now, queue.id, number, worker))
    tx.db.execute(
        SQL.lease_plain_message, (token, until, worker, request.liveness, now, note, number)
    )
    return token


def _are_sound(
    queue: int,
    numbers: Sequence[int],
    checksums: Sequence[int],
    bodies: Sequence[bytes],
) -> bool:
    """Whether the values are what was put."""
    try:
        return plain_seals(bodies, numbers, queue) == list(checksums)
    except TypeError:
        # Something that is no bytes at all.
        return False
