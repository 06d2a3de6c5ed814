"""The short way to lease messages that have nothing but a value: a few statements for all."""

from __future__ import annotations

import json
from collections.abc import Sequence

from localqueue.errors import StoreCorrupt
from localqueue.stores.leased import LeasedTogether
from localqueue.stores.protocol import PREFETCHED, LeaseRequest, StoredMessage
from localqueue.stores.sqlite.rows import plain_seal, plain_seals
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import INFLIGHT, READY
from localqueue.stores.sqlite.verbs.ack_plain import ack_in_order, is_run
from localqueue.stores.sqlite.view import QueueRow, Transaction


def lease_one(tx: Transaction, queue: QueueRow, request: LeaseRequest) -> LeasedTogether | None:
    """The next message, leased, or removed as well. Most calls are this one.

    None, and nothing done, when there is none, or it is not plain or not sound.
    """
    hand, number, worker, now = tx.file.hand, queue.id, request.worker, tx.now
    row = hand.execute(SQL.plain_messages, (number, 1)).fetchone()
    if row is None:
        return None
    message, rank, pos, created_at, checksum, body, plain = row
    if not (plain and type(body) is bytes and plain_seal(body, message, number) == checksum):
        return None
    token, until = tx.reserve(1, number, READY, INFLIGHT, worker), now + request.timeout
    hand.execute(SQL.add_lease_event_of_plain, (token, now, number, message, worker))
    if request.remove:
        seq = tx.reserve(1, number, INFLIGHT, None)
        waited = max(0.0, now - pos)
        acked = (seq, now, number, message, token, worker, created_at, waited)
        hand.execute(SQL.add_ack_event_of_plain, acked)
        hand.execute(SQL.delete_message, (message,))
    else:
        note = PREFETCHED if request.prefetched else None
        leased = (token, until, worker, request.liveness, now, note, message)
        hand.execute(SQL.lease_plain_message, leased)
    return LeasedTogether(
        queue.name, worker, now, until, token, (tx.file.identity.public(message),), (body,),
        (rank,), (created_at,), (pos,),
    )  # fmt: skip


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
    token = lease_numbers(tx, queue, numbers, until, request)
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
