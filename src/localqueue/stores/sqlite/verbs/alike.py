"""The short way for messages that differ in nothing but their value: a few statements for all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from localqueue.codec import checksum
from localqueue.stores.alike import AlikeAnswers
from localqueue.stores.protocol import Put, StoredMessage
from localqueue.stores.sqlite.rows import plain_seals, seal
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import DELAYED, PUBLIC_STATE, READY
from localqueue.stores.sqlite.verbs.bodies import LARGEST_INLINE
from localqueue.stores.sqlite.verbs.plain import is_plain
from localqueue.stores.sqlite.view import QueueRow, Transaction

AT_ONCE = (50, 16, 4, 1)
"""Rows per statement: more gain nothing, and few lengths keep prepared statements few."""


def are_alike(queue: QueueRow, puts: Sequence[Put], bounded: bool) -> bool:
    """Whether they are plain, and only their values differ."""
    if not is_plain(queue, puts[0], bounded):
        return False
    names, bodies, *options = zip(*puts, strict=True)
    return max(map(len, bodies)) <= LARGEST_INLINE and all(
        column.count(column[0]) == len(puts) for column in (names, *options)
    )


def insert_alike(tx: Transaction, queue: QueueRow, puts: Sequence[Put]) -> AlikeAnswers:
    """Store them all; the same rows and events as one by one."""
    first, settings, now = puts[0], queue.settings, tx.now
    due = now + first.delay
    state, due_at = (DELAYED, due) if first.delay > 0 else (READY, None)
    rank = -first.priority
    ttl = settings.ttl if first.ttl is None else first.ttl
    expires_at = None if ttl is None else now + ttl
    headers, codec = first.headers, None if first.codec == "json" else first.codec
    start = tx.reserve(len(puts), queue.id, None, state)
    shared = (
        queue.id, state, rank, due, due_at, now, expires_at, codec, headers,
    )  # fmt: skip
    seqs, bodies = range(start, start + len(puts)), [put.body for put in puts]
    if headers is None and codec is None:
        seals = plain_seals(bodies, seqs, queue.id)
    else:
        seals = [
            seal(checksum(body, headers, codec), seq, queue.id)
            for seq, body in zip(seqs, bodies, strict=True)
        ]
    _write(tx, shared, [*chain.from_iterable(zip(seqs, seals, bodies, strict=True))])
    tx.db.execute(SQL.add_alike_events, (start, tx.seq))
    tx.ready.add(queue.id)
    message = StoredMessage(
        "", queue.name, b"", first.codec, headers, PUBLIC_STATE[state], 0, now, due, None, None,
        None, None, [], None, -rank, None, expires_at, 0, 0, 0,
    )  # fmt: skip
    return AlikeAnswers(tx.file.identity.publics(seqs), bodies, message, queue.version)


def _write(tx: Transaction, shared: tuple[Any, ...], own: list[Any]) -> None:
    tx.write_messages()
    at = 0
    for rows in AT_ONCE:
        width = 3 * rows
        while len(own) - at >= width:
            tx.db.execute(SQL.add_alike_messages(rows), (*shared, *own[at : at + width]))
            at += width
