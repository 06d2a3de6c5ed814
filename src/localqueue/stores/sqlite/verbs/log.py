"""A topic's log: publications that subscribers read by position; leasing makes them messages."""

from __future__ import annotations

from typing import NamedTuple

from localqueue.errors import ConfigurationError
from localqueue.stores.sqlite.rows import MessageRow, seal
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import ENQUEUED, READY
from localqueue.stores.sqlite.verbs.bodies import drop_body, use_body
from localqueue.stores.sqlite.view import QueueRow, Transaction, View

SLICE = 256


class Publication(NamedTuple):
    """An entry of the log, in the order of the ``publication`` fragment of queries.sql."""

    offset: int
    seq: int
    created_at: float
    expires_at: float | None
    dedupe_key: str | None
    codec: str | None
    checksum: int
    body: int
    headers: bytes | None
    value: bytes | None


class Unread(NamedTuple):
    """What a subscriber has not read: offsets after ``position`` up to ``end``."""

    topic: int
    position: int
    end: int


def unread(view: View, queue: QueueRow) -> Unread | None:
    """The part of the log in front of a subscriber; None for other queues, or when it is empty."""
    if queue.topic is None:
        return None
    found = view.db.execute(SQL.find_subscription, (queue.id,)).fetchone()
    if found is None:
        return None
    topic, _, position, until = found
    last = last_offset(view, topic)
    end = last if until is None else min(until, last)
    return Unread(topic, position, end) if position < end else None


def last_offset(view: View, topic: int) -> int:
    found = view.db.execute(SQL.find_topic, (topic,)).fetchone()
    return int(found[0]) if found else 0


def count_unread(view: View, queue: QueueRow) -> int:
    rest = unread(view, queue)
    if rest is None:
        return 0
    skipped: int = view.db.execute(SQL.count_skipped, (queue.id, rest.position)).fetchone()[0]
    return rest.end - rest.position - skipped


def read_log(view: View, queue: QueueRow, rest: Unread, limit: int) -> list[Publication]:
    """The next publications for this subscriber, without those it does not get."""
    found: list[Publication] = []
    after = rest.position
    while len(found) < limit and after < rest.end:
        rows = view.db.execute(
            SQL.publications_after, (rest.topic, after, rest.end, limit)
        ).fetchall()
        if not rows:
            break
        last = rows[-1][0]
        skipped = {offset for (offset,) in view.db.execute(SQL.skipped, (queue.id, after, last))}
        found += [Publication._make(row) for row in rows if row[0] not in skipped]
        after = last
    return found[:limit]


def move_position(tx: Transaction, queue: QueueRow, rest: Unread, position: int) -> None:
    """The subscriber has passed everything up to ``position``."""
    tx.db.execute(SQL.move_subscription, (position, queue.id))
    tx.db.execute(SQL.forget_skipped, (queue.id, position))
    tx.room.add(queue.name)
    trim_log(tx, rest.topic)


def as_row(queue: QueueRow, topic: int, entry: Publication) -> MessageRow:
    """What the publication looks like as this subscriber's message, before it is one."""
    content = seal(entry.checksum, entry.seq, topic)
    return MessageRow(
        id=entry.seq,
        queue=queue.id,
        state=READY,
        rank=0,
        pos=entry.created_at,
        due_at=None,
        created_at=entry.created_at,
        attempts=0,
        failures=0,
        crashes=0,
        ended=0,
        token=None,
        worker=None,
        liveness=None,
        note=None,
        leased_at=None,
        cancel=0,
        expires_at=entry.expires_at,
        failed_at=None,
        error=None,
        dedupe_key=_own_key(queue, entry),
        key=None,
        turn=None,
        last=entry.seq,
        origin=entry.seq,
        alias=None,
        codec=entry.codec,
        checksum=seal(content, entry.seq, queue.id),
        body=entry.body,
        headers=entry.headers,
        value=entry.value,
    )


def make_message(tx: Transaction, queue: QueueRow, topic: int, entry: Publication) -> MessageRow:
    """Give the subscriber its own row: from here on lease, retry and dead letter are its own."""
    seen = as_row(queue, topic, entry)
    seq = tx.event(ENQUEUED, queue.id, entry.seq, prev=entry.seq, entered=READY)
    sealed = seal(seal(seen.checksum, seen.id, queue.id), seq, queue.id)
    row = seen._replace(id=seq, last=seq, checksum=sealed)
    use_body(tx, entry.body)
    tx.messages.append(
        (
            row.id, row.queue, row.state, row.rank, row.pos, row.due_at, row.created_at,
            row.expires_at, None, None, row.dedupe_key, None, None, row.last, row.origin, None,
            row.codec, row.checksum, row.body, row.headers, None,
        )
    )  # fmt: skip
    tx.write_messages()
    return row


def make_message_early(
    tx: Transaction, queue: QueueRow, topic: int, entry: Publication
) -> MessageRow:
    """Make one that is not the next: the position will pass over it."""
    tx.db.execute(SQL.skip_publication, (queue.id, entry.offset))
    return make_message(tx, queue, topic, entry)


def find_unread(view: View, queue: QueueRow, seq: int) -> tuple[int, Publication] | None:
    """An unread publication of this subscriber by its seq, with its topic."""
    rest = unread(view, queue)
    if rest is None:
        return None
    found = view.db.execute(SQL.publication_by_seq, (seq,)).fetchone()
    if found is None or found[0] != rest.topic:
        return None
    entry = Publication._make(found[1:])
    if not rest.position < entry.offset <= rest.end:
        return None
    if view.db.execute(SQL.skipped, (queue.id, entry.offset - 1, entry.offset)).fetchone():
        return None
    return rest.topic, entry


def trim_log(tx: Transaction, topic: int) -> None:
    """Publications that every subscriber has passed go, unless the topic's journal keeps them."""
    last = last_offset(tx, topic)
    floor = last
    for _, _, position, until in tx.db.execute(SQL.subscriptions, (topic,)):
        if until is None or position < until:
            floor = min(floor, position)
    kept_after = last_trimmed(tx, topic)
    gone = 0
    for offset, seq, body in tx.db.execute(
        SQL.oldest_publications, (topic, floor, SLICE)
    ).fetchall():
        if seq > kept_after:
            break
        drop_body(tx, body)
        gone = offset
    if gone:
        tx.db.execute(SQL.delete_publications, (topic, gone))


def last_trimmed(tx: Transaction, topic: int) -> int:
    """Up to where the topic's publications are no longer kept for late subscribers."""
    queue = tx.queue(tx.queue_name(topic))
    assert queue is not None
    if not (queue.settings.journal and queue.settings.journal_payloads):
        return tx.seq
    found = tx.db.execute(SQL.trimmed_upto, (topic,)).fetchone()
    return int(found[0]) if found else 0


def change_fanout(tx: Transaction, topic: QueueRow, mode: str | None) -> None:
    """A topic hands out differently from now on; nothing that was published is lost or repeated."""
    subscriptions = tx.db.execute(SQL.subscriptions, (topic.id,)).fetchall()
    last = last_offset(tx, topic.id)
    if mode is None and subscriptions:
        raise ConfigurationError(
            f"{topic.name!r} has subscribers; unsubscribe them before it becomes an ordinary queue"
        )
    if mode == "copy":
        tx.db.execute(SQL.end_log, (last, topic.id))
    elif topic.settings.fanout == "copy":
        behind = [name for _, name, position, until in subscriptions if position < (until or 0)]
        if behind:
            raise ConfigurationError(
                f"subscribers of {topic.name!r} still read the past ({', '.join(behind)});"
                " change the fan-out mode when they are done"
            )
        tx.db.execute(SQL.open_log, (last, topic.id))


def _own_key(queue: QueueRow, entry: Publication) -> str | None:
    if entry.dedupe_key is None:
        return None
    return f"{entry.dedupe_key}:{queue.name.rpartition('.')[2]}"
