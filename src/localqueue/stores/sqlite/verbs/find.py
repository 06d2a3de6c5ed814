"""Where a message is, by its public id."""

from __future__ import annotations

from localqueue.stores.sqlite.rows import MessageRow
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.verbs.log import as_row, find_unread
from localqueue.stores.sqlite.view import QueueRow, View


def find_row(view: View, queue: QueueRow, number: int) -> MessageRow | None:
    """The row of a message, by the number its public id is made of."""
    found = view.db.execute(SQL.message_row, (number,)).fetchone()
    if found is None:
        origin = view.db.execute(SQL.message_by_origin, (number, queue.id)).fetchone()
        if origin is not None:
            found = view.db.execute(SQL.message_row, origin).fetchone()
    if found is None or found[1] != queue.id:
        return None
    return MessageRow._make(found)


def find_number(view: View, queue: QueueRow, public_id: str) -> int | None:
    """The number behind a public id, also of a message that came from another file."""
    number = view.file.identity.seq(public_id)
    if number is None:
        found = view.db.execute(SQL.message_by_alias, (public_id, queue.id)).fetchone()
        number = found[0] if found else None
    return number


def read_row(view: View, queue: QueueRow, number: int) -> MessageRow | None:
    """The message with its value; an unread publication is shown as the message it will be."""
    row = find_row(view, queue, number)
    if row is not None:
        return MessageRow._make(view.db.execute(SQL.read_message, (row.id,)).fetchone())
    entry = find_unread(view, queue, number)
    return None if entry is None else as_row(queue, *entry)


def lives(view: View, queue: int, number: int) -> bool:
    """Whether the message is still there in any state; an overflowed one is in another queue."""
    if view.db.execute(SQL.message_row, (number,)).fetchone() is not None:
        return True
    row = view.queue(view.queue_name(queue))
    return row is not None and (
        find_row(view, row, number) is not None or find_unread(view, row, number) is not None
    )
