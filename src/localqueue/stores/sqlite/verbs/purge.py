"""Purge: everything of a queue but its settings."""

from __future__ import annotations

from collections import Counter

from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import BY_OPERATOR, PURGED
from localqueue.stores.sqlite.verbs.bodies import drop_body
from localqueue.stores.sqlite.verbs.fold import fold
from localqueue.stores.sqlite.verbs.log import count_unread, move_position, unread
from localqueue.stores.sqlite.view import Transaction

_OF_A_QUEUE = (
    SQL.purged_ready,
    SQL.purged_delayed,
    SQL.purged_held,
    SQL.purged_inflight,
    SQL.purged_dead,
)


def purge(tx: Transaction, queue: str) -> int:
    """Remove all messages, keys and worker statistics; how many messages that were."""
    row = tx.queue(queue)
    if row is None:
        return 0
    tx.write_messages()
    # Folded first, so that the counters start from nothing, also those of each worker.
    fold(tx)
    counts = [tx.count(row.id, state) for state in range(5)]
    unseen = count_unread(tx, row)
    rest = unread(tx, row)
    if rest is not None:
        move_position(tx, row, rest, rest.end)
    for statement in _OF_A_QUEUE:
        rows = tx.db.execute(statement, (row.id,)).fetchall()
        bodies = Counter(body for _, body, _, _, _ in rows if body is not None)
        for body, uses in bodies.items():
            drop_body(tx, body, uses)
        tx.db.executemany(SQL.delete_attempts, [(row[0],) for row in rows if row[2]])
        tx.db.executemany(SQL.delete_message, [(row[0],) for row in rows])
        # The keys of those that overflowed into this queue are kept where they were put.
        guests = [(home, key, number, tx.now) for number, _, _, home, key in rows if home and key]
        tx.db.executemany(SQL.release_dedupe, guests)
    tx.db.execute(SQL.purge_dedupes, (row.id,))
    tx.db.execute(SQL.delete_workers, (row.id,))
    for state, n in enumerate(counts):
        if n:
            tx.event(PURGED, row.id, left=state, n=n, by=BY_OPERATOR)
    # Told also when nothing was there: other processes then count from the fold above.
    tx.event(PURGED, row.id, n=unseen, by=BY_OPERATOR)
    tx.tell_room(row)
    return sum(counts) + unseen
