"""Ending leases: acknowledge, release, dead-letter, extend, cancel; stale receipts do nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from localqueue.message import NEVER_LEASED, Receipt
from localqueue.outcome import Ack, Cancel, Crashed, DeadLetter, Release, Settlement
from localqueue.stores.protocol import (
    PREFETCHED,
    Cancelled,
    LeaseAnswer,
    LeaseRequest,
    Settle,
    Settled,
    StoredMessage,
)
from localqueue.stores.sqlite.rows import MessageRow
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import (
    ACKED,
    BY_OPERATOR,
    BY_WORKER,
    CANCEL_ASKED,
    CANCELLED,
    DEAD,
    DEAD_LETTERED,
    EXTENDED,
    INFLIGHT,
    RELEASED,
)
from localqueue.stores.sqlite.verbs.ack_plain import ack_plain
from localqueue.stores.sqlite.verbs.find import find_number, find_row
from localqueue.stores.sqlite.verbs.lease import lease
from localqueue.stores.sqlite.verbs.leave import bury, put_back, remove
from localqueue.stores.sqlite.verbs.log import find_unread, make_message_early
from localqueue.stores.sqlite.verbs.publish import enqueue_many
from localqueue.stores.sqlite.verbs.records import change_records, conflicts
from localqueue.stores.sqlite.verbs.sweep import end_lease
from localqueue.stores.sqlite.view import Transaction


def ack_many(tx: Transaction, receipts: Sequence[Receipt]) -> list[bool]:
    """Remove what is held: plain messages in a few statements, anything else one by one."""
    if ack_plain(tx, receipts):
        return [True] * len(receipts)
    answers = []
    for receipt, row in _held(tx, receipts):
        if row is not None:
            remove(tx, row, ACKED, by=_actor(receipt))
        answers.append(row is not None)
    return answers


def release_many(
    tx: Transaction, receipts: Sequence[Receipt], delay: float, error: Mapping[str, Any] | None
) -> list[bool]:
    answers = []
    for receipt, row in _held(tx, receipts):
        may = row is not None and row.state != DEAD
        if row is not None and may:
            put_back(tx, row, RELEASED, delay=delay, error=error, by=_actor(receipt))
        answers.append(may)
    return answers


def dead_letter_many(
    tx: Transaction, receipts: Sequence[Receipt], error: Mapping[str, Any] | None
) -> list[bool]:
    answers = []
    for receipt, row in _held(tx, receipts):
        if row is not None:
            bury(tx, row, DEAD_LETTERED, error, by=_actor(receipt))
        answers.append(row is not None)
    return answers


def extend(
    tx: Transaction, receipts: Sequence[Receipt], timeout: float, note: str | None
) -> list[LeaseAnswer]:
    answers = []
    for receipt, row in _held(tx, receipts, make=False):
        if row is None or row.state != INFLIGHT:
            answers.append(LeaseAnswer.LOST)
            continue
        # Whoever does not say again that it is only prefetched has begun.
        kept = note or (None if row.note == PREFETCHED else row.note)
        detail = None if note is None else {"note": note}
        extend_lease(tx, row, tx.now + timeout, kept, _actor(receipt), detail)
        answers.append(LeaseAnswer.CANCEL_ASKED if row.cancel else LeaseAnswer.HELD)
    return answers


def extend_lease(
    tx: Transaction,
    row: MessageRow,
    until: float,
    note: str | None,
    by: int,
    detail: Mapping[str, Any] | None = None,
) -> None:
    seq = tx.event(
        EXTENDED,
        row.queue,
        row.number,
        prev=row.last,
        left=INFLIGHT,
        entered=INFLIGHT,
        attempt=row.attempts,
        worker=row.worker,
        by=by,
        detail=detail,
    )
    tx.db.execute(SQL.extend_lease, (until, note, seq, row.id))


def settle_and_lease(
    tx: Transaction, settles: Sequence[Settle], request: LeaseRequest | None
) -> tuple[list[Settled], Sequence[StoredMessage]]:
    """In the order given; acknowledgements that come one after the other are one batch."""
    answers: list[Settled] = []
    for together, items in groupby(settles, is_mere_ack):
        if together:
            held = ack_many(tx, [item.receipt for item in items])
            answers += [Settled.DONE if was else Settled.STALE for was in held]
        else:
            answers += [settle(tx, item) for item in items]
    return answers, lease(tx, request) if request is not None else []


def is_mere_ack(item: Settle) -> bool:
    return isinstance(item.settlement, Ack) and not item.records and not item.puts


def settle(tx: Transaction, item: Settle) -> Settled:
    """As the settlement says, with records and follow-ups; all of it or nothing."""
    if not item.receipt.token and conflicts(tx, item.records):
        # Before an unread publication is made a message for it.
        return Settled.CONFLICT
    ((receipt, row),) = _held(tx, [item.receipt])
    if row is None or not _fits(item.settlement, row):
        return Settled.STALE
    if conflicts(tx, item.records):
        return Settled.CONFLICT
    change_records(tx, item.records)
    by = _actor(receipt)
    match item.settlement:
        case Ack():
            remove(tx, row, ACKED, by=by)
        case Release(delay, error, failures):
            put_back(tx, row, RELEASED, delay=delay, error=error, by=by, failures=failures)
        case DeadLetter(error, failures):
            bury(tx, row, DEAD_LETTERED, error, by=by, failures=failures)
        case Crashed(error):
            queue = tx.queue_by_number(row.queue)
            end_lease(tx, queue, row, RELEASED, crashed=True, error=error, by=by)
        case Cancel():
            remove(tx, row, CANCELLED, by=by)
    enqueue_many(tx, item.puts, bounded=False)
    return Settled.DONE


def _fits(settlement: Settlement, row: MessageRow) -> bool:
    """Whether the message is in a state that can end so."""
    match settlement:
        case Release():
            return row.state != DEAD
        case Crashed():
            return row.state == INFLIGHT
    return True


def cancel(tx: Transaction, queue: str, message_id: str) -> Cancelled:
    ((_, row),) = _held(tx, [Receipt(queue, message_id, None)])
    if row is None or row.state == DEAD:
        return Cancelled.UNKNOWN
    if row.state != INFLIGHT:
        remove(tx, row, CANCELLED, by=BY_OPERATOR)
        return Cancelled.REMOVED
    seq = tx.event(
        CANCEL_ASKED,
        row.queue,
        row.number,
        prev=row.last,
        left=INFLIGHT,
        entered=INFLIGHT,
        attempt=row.attempts,
        worker=row.worker,
        by=BY_OPERATOR,
    )
    tx.db.execute(SQL.ask_cancel, (seq, row.id))
    return Cancelled.ASKED


def _actor(receipt: Receipt) -> int:
    return BY_OPERATOR if receipt.token is None else BY_WORKER


def _held(
    tx: Transaction, receipts: Sequence[Receipt], *, make: bool = True
) -> Iterator[tuple[Receipt, MessageRow | None]]:
    """Each receipt with the row it may act on now, or None; the same one may come twice."""
    numbers = [tx.file.identity.seq(receipt.id) for receipt in receipts]
    prefetched = _read_ahead(tx, numbers)
    touched: set[int] = set()
    for receipt, number in zip(receipts, numbers, strict=True):
        row = None
        if number is not None and number in prefetched and number not in touched:
            queue = tx.queue(receipt.queue)
            row = prefetched[number]
            if queue is None or row.queue != queue.id:
                row = None
            # Settling one may promote another of the batch: that one is read again.
            if row is not None and row.key is not None:
                row = _find(tx, receipt, make)
        else:
            row = _find(tx, receipt, make)
        if number is not None:
            touched.add(number)
        yield receipt, row if row is not None and _may_act(receipt, row) else None


def _read_ahead(tx: Transaction, numbers: Sequence[int | None]) -> dict[int, MessageRow]:
    """The rows of a batch in one statement."""
    if len(numbers) < 2:
        return {}
    tx.write_messages()
    ids = json.dumps([number for number in numbers if number is not None])
    rows = map(MessageRow._make, tx.db.execute(SQL.message_rows, (ids,)).fetchall())
    return {row.id: row for row in rows}


def _find(tx: Transaction, receipt: Receipt, make: bool) -> MessageRow | None:
    queue = tx.queue(receipt.queue)
    if queue is None:
        return None
    tx.write_messages()
    number = find_number(tx, queue, receipt.id)
    if number is None:
        return None
    row = find_row(tx, queue, number)
    if row is None and not receipt.token and make:
        # An unread publication that someone acts on by its id gets its own row first.
        entry = find_unread(tx, queue, number)
        row = None if entry is None else make_message_early(tx, queue, *entry)
    return row


def _may_act(receipt: Receipt, row: MessageRow) -> bool:
    if receipt.token is None:
        return True
    if receipt.token == NEVER_LEASED:
        return row.state != INFLIGHT
    return row.state == INFLIGHT and row.token == receipt.token
