"""Dead letters: looked at, delivered again, or let go."""

from __future__ import annotations

from collections.abc import Sequence

from localqueue.stores.protocol import StoredMessage
from localqueue.stores.sqlite.rows import MessageRow, stored_message
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import BY_OPERATOR, DEAD, PRUNED, REQUEUED
from localqueue.stores.sqlite.verbs.find import find_number, find_row
from localqueue.stores.sqlite.verbs.history import ended_attempts
from localqueue.stores.sqlite.verbs.leave import put_back, remove
from localqueue.stores.sqlite.view import Transaction, View

SLICE = 1000


def dead_letters(view: View, queue: str, limit: int | None) -> list[StoredMessage]:
    row = view.queue(queue)
    if row is None:
        return []
    found = view.db.execute(SQL.dead_messages, (row.id, -1 if limit is None else limit))
    return [
        stored_message(view.file.identity, queue, message, ended_attempts(view, message))
        for message in map(MessageRow._make, found.fetchall())
    ]


def dead_letter_ids(view: View, queue: str, limit: int | None) -> list[str]:
    row = view.queue(queue)
    if row is None:
        return []
    found = view.db.execute(SQL.dead_ids, (row.id, -1 if limit is None else limit))
    return [alias or view.file.identity.public(number) for number, alias in found.fetchall()]


def requeue_dead_many(
    tx: Transaction, queue: str, message_ids: Sequence[str], delay: float
) -> list[bool]:
    row = tx.queue(queue)
    answers = []
    for message_id in message_ids:
        number = None if row is None else find_number(tx, row, message_id)
        message = None if row is None or number is None else find_row(tx, row, number)
        is_dead = message is not None and message.state == DEAD
        if message is not None and is_dead:
            put_back(tx, message, REQUEUED, delay=delay, by=BY_OPERATOR)
        answers.append(is_dead)
    return answers


def count_dead_letters_older_than(view: View, queue: str, older_than: float, now: float) -> int:
    row = view.queue(queue)
    if row is None:
        return 0
    return int(view.db.execute(SQL.count_old_dead, (row.id, now - older_than)).fetchone()[0])


def prune_slice(tx: Transaction, queue: str, older_than: float) -> int:
    """Remove a slice of the dead letters that are at least this old; how many."""
    row = tx.queue(queue)
    if row is None:
        return 0
    found = tx.db.execute(SQL.old_dead_messages, (row.id, tx.now - older_than, SLICE)).fetchall()
    for message in map(MessageRow._make, found):
        remove(tx, message, PRUNED, by=BY_OPERATOR)
    return len(found)
