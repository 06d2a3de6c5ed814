"""A message's row, and what a caller is given of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple
from zlib import crc32

from localqueue.codec import checksum
from localqueue.message import State, leased_entry
from localqueue.stores.protocol import StoredMessage
from localqueue.stores.sqlite.identity import Identity
from localqueue.stores.sqlite.states import DEAD, DELAYED, HELD, INFLIGHT, PUBLIC_STATE


class MessageRow(NamedTuple):
    """The columns in the order of the ``row`` and ``content`` fragments of queries.sql."""

    id: int
    queue: int
    state: int
    rank: int
    pos: float
    due_at: float | None
    created_at: float
    attempts: int
    failures: int
    crashes: int
    ended: int
    token: int | None
    worker: str | None
    liveness: str | None
    note: str | None
    leased_at: float | None
    cancel: int
    expires_at: float | None
    failed_at: float | None
    error: str | None
    dedupe_key: str | None
    key: str | None
    turn: int | None
    last: int
    home: int | None
    origin: int | None
    alias: str | None
    codec: str | None
    checksum: int
    body: int | None
    headers: bytes | None
    value: bytes | None

    @property
    def number(self) -> int:
        """What its public id is made of: a publication has one for all its subscribers."""
        return self.id if self.origin is None else self.origin


def leased(row: MessageRow, token: int, until: float, worker: str | None, now: float) -> MessageRow:
    """The row as a lease leaves it."""
    return MessageRow(
        row.id, row.queue, INFLIGHT, row.rank, row.pos, until, row.created_at, row.attempts + 1,
        row.failures, row.crashes, row.ended, token, worker, None, None, now, 0, row.expires_at,
        row.failed_at, row.error, row.dedupe_key, row.key, row.turn, token, row.home, row.origin,
        row.alias, row.codec, row.checksum, row.body, row.headers, row.value,
    )  # fmt: skip


def leased_message(
    identity: Identity,
    queue: str,
    row: MessageRow,
    history: list[dict[str, Any]],
    token: int,
    until: float,
    worker: str | None,
    now: float,
) -> StoredMessage:
    """``stored_message(leased(row, ...))`` of a row that is known to be sound, in fewer steps."""
    (
        _, _, _, rank, pos, _, created_at, attempts, failures, crashes, _, _, _, _, _, _, _,
        expires_at, failed_at, error, dedupe_key, key, _, _, _, _, _, codec, _, _, headers, value,
    ) = row  # fmt: skip
    history.append(leased_entry(now, attempts + 1, worker))
    return StoredMessage._make(
        (
            public_id(identity, row), queue, value, codec or "json", headers, State.INFLIGHT,
            attempts + 1, created_at, pos, until, worker,
            read_json(error), failed_at, history, dedupe_key, -rank,
            key, expires_at, failures, crashes, token, False,
        )
    )  # fmt: skip


def seal(content: int, message: int, queue: int, origin: int = 0) -> int:
    """Binds a checksum to its row, so that a value never appears under another id or queue.

    Doing it twice gives the content's own checksum again.
    """
    return (content ^ message * 2654435761 ^ queue * 40503 ^ origin * 2246822519) & 0xFFFFFFFF


def plain_seal(body: bytes, message: int, queue: int) -> int:
    """``seal(checksum(body, None), message, queue)``."""
    return (crc32(body) ^ message * 2654435761 ^ queue * 40503) & 0xFFFFFFFF


def plain_seals(bodies: Iterable[bytes], messages: Iterable[int], queue: int) -> list[int]:
    """``seal(checksum(body, None), message, queue)`` of many."""
    own = queue * 40503
    return [
        (crc32(body) ^ message * 2654435761 ^ own) & 0xFFFFFFFF
        for body, message in zip(bodies, messages, strict=True)
    ]


def is_damaged(row: MessageRow) -> bool:
    """Whether value and headers are not what was put."""
    value, headers = row[-1], row[-2]
    if type(value) is not bytes or (headers is not None and type(headers) is not bytes):
        return True
    return (
        seal(checksum(value, headers, row.codec), row[0], row[1], row.origin or 0) != row.checksum
    )


def read_json(text: str | None) -> dict[str, Any] | None:
    """A kept error or detail; damage to it must not keep its message from being delivered."""
    try:
        return None if text is None else dict(json.loads(text))
    except (TypeError, ValueError):
        return {"type": None, "module": None, "message": "what was kept here is damaged"}


def public_id(identity: Identity, row: MessageRow) -> str:
    return row.alias or identity.public(row.origin or row.id)


def stored_message(
    identity: Identity,
    queue: str,
    row: MessageRow,
    history: list[dict[str, Any]],
    damaged: bool | None = None,
) -> StoredMessage:
    """The row as callers see it. A damaged body is left out and marked."""
    if damaged is None:
        damaged = is_damaged(row)
    inflight = row.state == INFLIGHT
    waits = row.state in (DELAYED, HELD)
    if inflight and row.leased_at is not None:
        history = [*history, leased_entry(row.leased_at, row.attempts, row.worker)]
    return StoredMessage(
        public_id(identity, row),
        queue,
        b"" if damaged or row.value is None else row.value,
        row.codec or "json",
        None if damaged else row.headers,
        PUBLIC_STATE[row.state],
        row.attempts,
        row.created_at,
        row.due_at if waits and row.due_at is not None else row.pos,
        row.due_at if inflight else None,
        row.worker if inflight else None,
        read_json(row.error),
        row.failed_at,
        history,
        row.dedupe_key,
        -row.rank,
        row.key,
        None if row.state == DEAD else row.expires_at,
        row.failures,
        row.crashes,
        row.token or 0 if inflight else 0,
        damaged,
    )
