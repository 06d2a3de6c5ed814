"""Looking without touching: one message, the next ones, and what is counted."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from localqueue.message import QueueStats
from localqueue.stores.protocol import StoredMessage
from localqueue.stores.sqlite.rows import MessageRow, stored_message
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import DEAD, DELAYED, HELD, INFLIGHT, READY
from localqueue.stores.sqlite.verbs.find import find_number, read_row
from localqueue.stores.sqlite.verbs.history import ended_attempts
from localqueue.stores.sqlite.verbs.log import (
    as_row,
    count_expired_unread,
    count_unread,
    read_log,
    unread,
)
from localqueue.stores.sqlite.verbs.sweep import SLICE, is_poison
from localqueue.stores.sqlite.view import QueueRow, View


def read(view: View, queue: str, message_id: str) -> StoredMessage | None:
    row = view.queue(queue)
    if row is None:
        return None
    number = find_number(view, row, message_id)
    found = None if number is None else read_row(view, row, number)
    if found is None:
        return None
    return stored_message(view.file.identity, queue, found, ended_attempts(view, found))


def peek(view: View, queue: str, limit: int, now: float) -> list[StoredMessage]:
    """The next messages, as if everything that is due were swept."""
    row = view.queue(queue)
    if row is None or limit == 0:
        return []
    found = [
        *_first(map(MessageRow._make, view.db.execute(SQL.ready_in_order, (row.id,))), limit, now),
        *_first(_returning(view, row, now, limit), -1, now),
        *_first(_unread(view, row, limit), limit, now),
    ]
    found.sort(key=lambda message: (message.rank, message.pos, message.id))
    return [
        stored_message(view.file.identity, queue, message, ended_attempts(view, message))
        for message in found[:limit]
    ]


def _first(rows: Iterable[MessageRow], limit: int, now: float) -> Iterator[MessageRow]:
    """Those that are not expired; the first of them, unless the limit is -1."""
    living = (row for row in rows if row.expires_at is None or row.expires_at > now)
    return itertools.islice(living, None if limit < 0 else limit)


def _returning(view: View, queue: QueueRow, now: float, limit: int) -> Iterator[MessageRow]:
    """Delayed messages that are due, and messages whose lease is over: ready, but not swept yet."""
    arguments = (queue.id, now, max(limit, SLICE))
    for row in map(MessageRow._make, view.db.execute(SQL.due_of_queue, arguments)):
        yield row._replace(state=READY, pos=row.due_at or now, due_at=None)
    for row in map(MessageRow._make, view.db.execute(SQL.ended_of_queue, arguments)):
        if not is_poison(queue.settings, row.crashes, row.liveness, row.note):
            yield row._replace(state=READY, pos=now, due_at=None, token=None)


def _unread(view: View, queue: QueueRow, at_once: int) -> Iterator[MessageRow]:
    """A subscriber's part of the log as messages, read so many at once."""
    rest = unread(view, queue)
    while rest is not None:
        entries = read_log(view, queue, rest, at_once)
        yield from (as_row(queue, rest.topic, entry) for entry in entries)
        rest = rest._replace(position=entries[-1].offset) if len(entries) == at_once else None


def qsize(view: View, queue: str, now: float) -> int:
    row = view.queue(queue)
    return 0 if row is None else _as_if_swept(view, row, now)[READY]


def waiting(view: View, queue: str, now: float) -> int:
    """What capacity counts."""
    row = view.queue(queue)
    if row is None:
        return 0
    expired: int = view.db.execute(SQL.count_expired, (row.id, now)).fetchone()[0]
    return sum(view.states(row.id)[:INFLIGHT]) + count_unread(view, row, now) - expired


def stats(view: View, queue: str, now: float) -> QueueStats:
    row = view.queue(queue)
    if row is None:
        return QueueStats()
    counts = _as_if_swept(view, row, now)
    leases = view.db.execute(SQL.leases, (row.id, now)).fetchall()
    n = sum(count for _, count, _, _ in leases)
    return QueueStats(
        ready=counts[READY],
        delayed=counts[DELAYED] + counts[HELD],
        inflight=counts[INFLIGHT],
        dead=counts[DEAD],
        total=sum(counts),
        by_worker_id={worker: count for worker, count, _, _ in leases if worker is not None},
        leases_by_worker_id=view.file.counts.leases(view.db, row.id, view.start_seq),
        last_seen_by_worker_id=dict(view.db.execute(SQL.workers_seen, (row.id,)).fetchall()),
        oldest_ready_age_seconds=_oldest_ready_age(view, row, now),
        oldest_inflight_age_seconds=max((oldest for _, _, oldest, _ in leases), default=None),
        average_inflight_age_seconds=sum(ages for *_, ages in leases) / n if n else None,
        held=counts[HELD],
    )


def next_due(view: View, queues: Sequence[str]) -> float | None:
    """When time will next change something in these queues."""
    rows = [row for name in queues if (row := view.queue(name)) is not None]
    found = [
        view.db.execute(statement, (row.id,)).fetchone()
        for row in rows
        for statement in (SQL.next_due_delayed, SQL.next_due_lease)
    ]
    return min((due[0] for due in found if due is not None), default=None)


def _as_if_swept(view: View, queue: QueueRow, now: float) -> list[int]:
    """The counts as the next lease will find them: what is due moves, what is expired goes."""
    counts = view.states(queue.id)
    buries = queue.settings.on_expiry == "dead-letter"
    if queue.topic is not None:
        counts[READY] += count_unread(view, queue, now)
        counts[DEAD] += count_expired_unread(view, queue, now) if buries else 0
    due = view.db.execute(SQL.count_due, (queue.id, now)).fetchone()[0]
    counts[DELAYED] -= due
    counts[READY] += due
    keys = set()
    for state, due_at, key in view.db.execute(SQL.expired_states, (queue.id, now)):
        moved = state == DELAYED and due_at is not None and due_at <= now
        counts[READY if moved else state] -= 1
        counts[DEAD] += buries
        keys.add(key)
    for crashes, liveness, note, expires_at, key in view.db.execute(
        SQL.fates_of_ended, (queue.id, now)
    ):
        expired = expires_at is not None and expires_at <= now
        counts[INFLIGHT] -= 1
        if is_poison(queue.settings, crashes, liveness, note) or (expired and buries):
            counts[DEAD] += 1
        elif not expired:
            counts[READY] += 1
            continue
        keys.add(key)
    for key in keys - {None}:
        _count_next_of_key(view, queue, key, now, counts)
    return counts


def _count_next_of_key(
    view: View, queue: QueueRow, key: str, now: float, counts: list[int]
) -> None:
    """Whoever comes after a head that leaves is held no more."""
    for row in map(MessageRow._make, view.db.execute(SQL.members_of_key, (queue.id, key))):
        ended = row.state == INFLIGHT and row.due_at is not None and row.due_at <= now
        expired = row.expires_at is not None and row.expires_at <= now
        if (ended and is_poison(queue.settings, row.crashes, row.liveness, row.note)) or (
            expired and (ended or row.state != INFLIGHT)
        ):
            continue
        if row.state == HELD:
            counts[HELD] -= 1
            counts[DELAYED if row.due_at is not None and row.due_at > now else READY] += 1
        return


def _oldest_ready_age(view: View, queue: QueueRow, now: float) -> float | None:
    """The first of each priority is the oldest of it; one step per priority, however many wait."""
    _, first_due = view.db.execute(SQL.count_due, (queue.id, now)).fetchone()
    oldest = [] if first_due is None else [first_due]
    if view.db.execute(SQL.ended_leases, (queue.id, now, 1)).fetchone() is not None:
        oldest.append(now)
    oldest += [row.pos for row in _first(_unread(view, queue, 1), 1, now)]
    found = view.db.execute(SQL.first_rank, (queue.id, now)).fetchone()
    while found is not None:
        rank, pos = found
        oldest.append(pos)
        found = view.db.execute(SQL.next_rank, (queue.id, now, rank)).fetchone()
    return max(0.0, now - min(oldest)) if oldest else None
