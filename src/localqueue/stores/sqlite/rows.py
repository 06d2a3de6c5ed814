"""A message's row, and what a caller is given of it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from localqueue.codec import checksum
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

    @property
    def has_history(self) -> bool:
        """Whether ended attempts may stand in the side table."""
        return self.attempts > 1 or (self.attempts == 1 and self.state != INFLIGHT)


def seal(content: int, message: int, queue: int) -> int:
    """Binds a checksum to its row, so that a value never appears under another id or queue."""
    return (content ^ (message * 2654435761) ^ (queue * 40503)) & 0xFFFFFFFF


def is_damaged(row: MessageRow) -> bool:
    """Whether value and headers are not what was put."""
    value, headers = row.value, row.headers
    if type(value) is not bytes or (headers is not None and type(headers) is not bytes):
        return True
    return seal(checksum(value, headers), row.id, row.queue) != row.checksum


def lease_entry(at: float, attempt: int, worker: str | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "leased", "at": at, "attempt": attempt}
    if worker is not None:
        entry["leased_by"] = worker
    return entry


def public_id(identity: Identity, row: MessageRow) -> str:
    if row.alias is not None:
        return row.alias
    return identity.public(row.number)


def stored_message(
    identity: Identity, queue: str, row: MessageRow, history: list[dict[str, Any]]
) -> StoredMessage:
    """The row as callers see it. A damaged body is left out and marked."""
    damaged = is_damaged(row)
    inflight = row.state == INFLIGHT
    waits = row.state in (DELAYED, HELD)
    if inflight and row.leased_at is not None:
        history = [*history, lease_entry(row.leased_at, row.attempts, row.worker)]
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
        None if row.error is None else json.loads(row.error),
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
