"""For those who wait: the numbers of their queues, and whether there is something for the next."""

from __future__ import annotations

from collections.abc import Iterable

from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import INFLIGHT
from localqueue.stores.sqlite.verbs.log import count_unread, unread
from localqueue.stores.sqlite.view import QueueRow, View

SOON = 1.0
"""A waiter looks by itself this often, so what is due later needs nobody to be told."""


def numbers(view: View, queues: Iterable[str]) -> dict[str, int]:
    """The row numbers of those queues that have a row."""
    return {name: row.id for name in queues if (row := view.queue(name)) is not None}


def anything_ready(view: View, number: int) -> bool:
    """Whether a lease would find something, now or soon."""
    queue = view.queue_by_number(number)
    if queue.settings.paused:
        return False
    if view.db.execute(SQL.is_ready, (number,)).fetchone() is not None:
        return True
    return _is_unread(view, queue) or _due_soon(view, number)


def any_room(view: View, number: int) -> bool:
    """Whether a put would find room, without what a sweep would find expired."""
    queue = view.queue_by_number(number)
    if not queue.settings.maxsize:
        return True
    waiting = sum(view.states(number)[:INFLIGHT]) + count_unread(view, queue)
    return waiting < queue.settings.maxsize


def _is_unread(view: View, queue: QueueRow) -> bool:
    return queue.topic is not None and unread(view, queue) is not None


def _due_soon(view: View, number: int) -> bool:
    until = view.file.newest + SOON
    for statement in (SQL.next_due_delayed, SQL.next_due_lease):
        due = view.db.execute(statement, (number,)).fetchone()
        if due is not None and due[0] <= until:
            return True
    return False
