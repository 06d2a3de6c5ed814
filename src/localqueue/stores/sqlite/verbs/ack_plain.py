"""The short way to acknowledge messages that nothing else refers to: a few statements for all."""

from __future__ import annotations

import json
from collections.abc import Sequence

from localqueue.message import Receipt
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import INFLIGHT
from localqueue.stores.sqlite.view import QueueRow, Transaction


def ack_plain(tx: Transaction, receipts: Sequence[Receipt]) -> bool:
    """Whether all were plain messages of one queue, held by these receipts, and are gone.

    Otherwise nothing is done.
    """
    if not receipts:
        return True
    queue = tx.queue(receipts[0].queue)
    names, ids, tokens = zip(*receipts, strict=True)
    if queue is None or names.count(queue.name) != len(names) or None in tokens:
        return False
    tx.write_messages()
    first = tx.file.identity.seq(ids[0])
    if first is None:
        return False
    run = range(first, first + len(ids))
    if tokens == (*range(tokens[0], tokens[0] + len(tokens)),) and _are_those(tx, ids, run):
        return _ack_run(tx, queue, run, tokens[0])
    return _ack_list(tx, queue, ids, tokens)


def _are_those(tx: Transaction, ids: tuple[str, ...], run: range) -> bool:
    return len(ids) == 1 or list(ids) == tx.file.identity.publics(run)


def _ack_run(tx: Transaction, queue: QueueRow, run: range, token: int) -> bool:
    """Messages that were leased one after the other, as they were put: their events tell whether
    they were held, because only those of held ones are written."""
    first, last, n = run[0], run[-1], len(run)
    seq = tx.seq + 1
    arguments = (seq, tx.now, first, last, queue.id, token)
    written = tx.db.execute(SQL.add_ack_events_of_run, arguments).rowcount
    if written != n:
        if written:
            tx.db.execute(SQL.take_back_events, (seq,))
        return False
    tx.reserve(n, queue.id, INFLIGHT, None)
    tx.db.execute(SQL.delete_run, (first, last))
    return True


def _ack_list(
    tx: Transaction, queue: QueueRow, ids: tuple[str, ...], tokens: tuple[int, ...]
) -> bool:
    numbers = [tx.file.identity.seq(id_) for id_ in ids]
    if None in numbers or len(set(numbers)) != len(numbers):
        return False
    listed = json.dumps(numbers)
    rows = tx.db.execute(SQL.held_messages, (listed,)).fetchall()
    if rows != [(queue.id, INFLIGHT, token, 1) for token in tokens]:
        return False
    seq = tx.reserve(len(rows), queue.id, INFLIGHT, None)
    tx.db.execute(SQL.add_ack_events, (seq, tx.now, listed))
    tx.db.execute(SQL.delete_messages, (listed,))
    return True
