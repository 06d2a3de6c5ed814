"""The short way to acknowledge messages that nothing else refers to: a few statements for all."""

from __future__ import annotations

import json
from collections.abc import Sequence

from localqueue.message import Receipt
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import INFLIGHT
from localqueue.stores.sqlite.view import QueueRow, Transaction

LARGEST_TOKEN = 2**62
"""Far more than there will be, and what SQLite can still add to."""


def ack_plain(tx: Transaction, receipts: Sequence[Receipt]) -> bool:
    """Whether all were plain messages of one queue, held by these receipts, and are gone.

    Otherwise nothing is done.
    """
    if not receipts:
        return True
    if len(receipts) == 1:
        return _ack_one(tx, receipts[0])
    names, ids, tokens = zip(*receipts, strict=True)
    queue = tx.queue(names[0])
    numbers = tx.file.identity.seqs(ids)
    if queue is None or numbers is None or None in tokens or names.count(names[0]) != len(names):
        return False
    tx.write_messages()
    token = tokens[0]
    if 0 < token < LARGEST_TOKEN and tokens == tuple(range(token, token + len(tokens))):
        return ack_in_order(tx, queue, numbers, token)
    return _ack_in_any_order(tx, queue, numbers, tokens)


def _ack_one(tx: Transaction, receipt: Receipt) -> bool:
    name, public, token = receipt
    queue, number = tx.queue(name), tx.file.identity.seq(public)
    if queue is None or number is None or token is None or not 0 < token < LARGEST_TOKEN:
        return False
    hand, seq = tx.file.hand, tx.seq + 1
    tx.write_messages()
    held = (seq, tx.now, queue.id, token, number, number)
    if hand.execute(SQL.add_ack_events_of_run, held).rowcount != 1:
        return False
    tx.reserve(1, queue.id, INFLIGHT, None)
    hand.execute(SQL.delete_message, (number,))
    return True


def ack_in_order(tx: Transaction, queue: QueueRow, numbers: Sequence[int], token: int) -> bool:
    """Messages in the order they were leased in; the first has this token.

    Events are written for those that are held. If that is not all of them, they are taken back.
    """
    seq, n = tx.seq + 1, len(numbers)
    held = (seq, tx.now, queue.id, token)
    if is_run(numbers):
        which: tuple[int | str, ...] = (numbers[0], numbers[-1])
        add_events, delete = SQL.add_ack_events_of_run, SQL.delete_run
    else:
        which = (json.dumps(numbers),)
        add_events, delete = SQL.add_ack_events_in_order, SQL.delete_messages
    written: int = tx.db.execute(add_events, (*held, *which)).rowcount
    if written == n:
        tx.reserve(n, queue.id, INFLIGHT, None)
        tx.db.execute(delete, which)
    elif written:
        tx.db.execute(SQL.take_back_events, (seq,))
    return written == n


def is_run(numbers: Sequence[int]) -> bool:
    """Whether each is the one before it plus one."""
    first, n = numbers[0], len(numbers)
    return n == 1 or (
        numbers[-1] == first + n - 1 and list(numbers) == list(range(first, first + n))
    )


def _ack_in_any_order(
    tx: Transaction, queue: QueueRow, numbers: Sequence[int], tokens: Sequence[int]
) -> bool:
    ids = json.dumps(numbers)
    rows = tx.db.execute(SQL.held_messages, (ids,)).fetchall()
    held = rows == [(queue.id, INFLIGHT, token, 1) for token in tokens]
    if held and len(set(numbers)) == len(numbers):
        seq = tx.reserve(len(rows), queue.id, INFLIGHT, None)
        tx.db.execute(SQL.add_ack_events, (seq, tx.now, ids))
        tx.db.execute(SQL.delete_messages, (ids,))
        return True
    return False
