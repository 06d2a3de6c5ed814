"""A topic's log: publications that subscribers read by position; leasing makes them messages."""

from __future__ import annotations

from typing import NamedTuple

from localqueue.errors import ConfigurationError
from localqueue.stores.protocol import LARGEST_BATCH_BYTES
from localqueue.stores.sqlite.rows import MessageRow, seal
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import ENQUEUED, READY
from localqueue.stores.sqlite.verbs.bodies import drop_body, use_body
from localqueue.stores.sqlite.verbs.leave import expire
from localqueue.stores.sqlite.view import QueueRow, Transaction, View

SLICE = 256
MOST_SLICES = 64


class Publication(NamedTuple):
    """An entry of the log, in the order of the ``publication`` fragment of queries.sql."""

    offset: int
    seq: int
    created_at: float
    expires_at: float | None
    dedupe_key: str | None
    fingerprint: int
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


def count_unread(view: View, queue: QueueRow, now: float | None = None) -> int:
    """What the subscriber will read; with ``now`` without what is expired by then."""
    rest = unread(view, queue)
    if rest is None:
        return 0
    skipped: int = view.db.execute(SQL.count_skipped, (queue.id, rest.position)).fetchone()[0]
    n = rest.end - rest.position - skipped
    return n if now is None else n - count_expired_unread(view, queue, now)


def count_expired_unread(view: View, queue: QueueRow, now: float) -> int:
    rest = unread(view, queue)
    if rest is None:
        return 0
    found = view.db.execute(SQL.count_expired_publications, (*rest, queue.id, now)).fetchone()
    return int(found[0])


def read_log(view: View, queue: QueueRow, rest: Unread, limit: int) -> list[Publication]:
    """The next publications for this subscriber, without those it does not get; 16 MiB of them."""
    found: list[Publication] = []
    size = 0
    for row in view.db.execute(SQL.publications_after, (*rest, queue.id, limit)):
        found.append(Publication._make(row))
        size += len(found[-1].value or b"")
        if size > LARGEST_BATCH_BYTES:
            break
    return found


def move_position(tx: Transaction, queue: QueueRow, rest: Unread, position: int) -> None:
    """The subscriber has passed everything up to ``position``, and what is skipped behind it."""
    while True:
        after = [
            offset for (offset,) in tx.db.execute(SQL.skipped_after, (queue.id, position, SLICE))
        ]
        run = [offset for n, offset in enumerate(after, position + 1) if n == offset]
        position = run[-1] if run else position
        if len(run) < SLICE:
            break
    tx.db.execute(SQL.move_subscription, (position, queue.id))
    tx.db.execute(SQL.forget_skipped, (queue.id, position))
    tx.tell_room(queue)
    trim_log(tx, rest.topic)


def pass_over(tx: Transaction, queue: QueueRow, offset: int) -> None:
    """The subscriber does not get this publication from the log."""
    if not tx.db.execute(SQL.pass_publication, (queue.id, offset)).rowcount:
        tx.db.execute(SQL.skip_publication, (queue.id, offset))


def expire_unread(tx: Transaction, queue: QueueRow, limit: int) -> int:
    """Let go of a slice of the unread publications whose time to live is over; how many."""
    rest = unread(tx, queue)
    if rest is None:
        return 0
    arguments = (*rest, queue.id, tx.now, limit)
    expired = [
        Publication._make(row)
        for row in tx.db.execute(SQL.expired_publications, arguments).fetchall()
    ]
    for entry in expired:
        expire(tx, make_message_early(tx, queue, rest.topic, entry))
    left = unread(tx, queue)
    if expired and left is not None:
        move_position(tx, queue, left, left.position)
    return len(expired)


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
        dedupe_key=own_key(entry.dedupe_key, queue),
        key=None,
        turn=None,
        last=entry.seq,
        home=None,
        origin=entry.seq,
        alias=None,
        codec=entry.codec,
        checksum=seal(content, entry.seq, queue.id, entry.seq),
        body=entry.body,
        headers=entry.headers,
        value=entry.value,
    )


def make_message(tx: Transaction, queue: QueueRow, topic: int, entry: Publication) -> MessageRow:
    """Give the subscriber its own row: from here on lease, retry and dead letter are its own."""
    seen = as_row(queue, topic, entry)
    seq = tx.event(ENQUEUED, queue.id, entry.seq, prev=entry.seq, entered=READY)
    # The origin is the same in both, and stays.
    sealed = seal(seal(seen.checksum, seen.id, queue.id), seq, queue.id)
    row = seen._replace(id=seq, last=seq, checksum=sealed)
    use_body(tx, entry.body)
    tx.messages.append(
        (
            row.id, row.queue, row.state, row.rank, row.pos, row.due_at, row.created_at,
            row.expires_at, None, None, row.dedupe_key, None, None, row.last, None, row.origin,
            None, row.codec, row.checksum, row.body, row.headers, None,
        )
    )  # fmt: skip
    tx.write_messages()
    return row


def make_message_early(
    tx: Transaction, queue: QueueRow, topic: int, entry: Publication
) -> MessageRow:
    """Make one that is not the next: the position will pass over it."""
    pass_over(tx, queue, entry.offset)
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
    if view.db.execute(SQL.is_skipped, (queue.id, entry.offset)).fetchone():
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
    for _ in range(MOST_SLICES):
        rows = tx.db.execute(SQL.oldest_publications, (topic, floor, SLICE)).fetchall()
        gone = [(offset, body) for offset, seq, body in rows if seq <= kept_after]
        for _, body in gone:
            drop_body(tx, body)
        if gone:
            tx.db.execute(SQL.delete_publications, (topic, gone[-1][0]))
        if len(gone) < SLICE:
            break


def last_trimmed(tx: Transaction, topic: int) -> int:
    """Up to where the topic's publications are no longer kept for late subscribers."""
    queue = tx.queue(tx.queue_name(topic))
    assert queue is not None
    if not queue.settings.keeps_payloads:
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


def own_key(key: str | None, queue: QueueRow) -> str | None:
    """A publication's dedupe key as this subscriber has it."""
    return None if key is None else f"{key}:{queue.name.rpartition('.')[2]}"
