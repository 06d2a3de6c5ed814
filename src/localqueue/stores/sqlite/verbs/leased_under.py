"""What is held under a liveness name, with the messages: for one who lost the receipts."""

from __future__ import annotations

from localqueue.stores.protocol import StoredMessage
from localqueue.stores.sqlite.rows import MessageRow, stored_message
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.verbs.ack_plain import LARGEST_TOKEN
from localqueue.stores.sqlite.verbs.history import ended_attempts
from localqueue.stores.sqlite.view import View


def leased_under(
    view: View, liveness: str, queue: str, after: int, upto: int | None
) -> list[StoredMessage]:
    row = view.queue(queue)
    if row is None:
        return []
    last = LARGEST_TOKEN if upto is None else min(upto, LARGEST_TOKEN)
    found = view.db.execute(SQL.messages_under, (row.id, liveness, after, last)).fetchall()
    messages = [
        stored_message(view.file.identity, queue, held, ended_attempts(view, held))
        for held in map(MessageRow._make, found)
    ]
    messages.sort(key=lambda message: message.token)
    return messages
