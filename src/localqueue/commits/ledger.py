"""The ledger as a lock: a key belongs to one delivery for as long as that one has its lease.

    (unknown) ──claim──▶ pending, with a lease ──success──▶ succeeded
                  ▲                 ├──failure──▶ failed ──claim──▶ pending
                  └──the lease is over──┘

A claim is a compare-and-set, so of two deliveries one waits. Between reading the record and
replacing it a delivery looks at its own lease: one that has lost it takes the key from nobody. A
later delivery of the same message takes the key at once: the lease of the earlier one is over. What
another message holds is free when that message's lease is over; where its message is not in this
store, at the deadline that follows its heartbeats.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

from localqueue.commits.home import Home
from localqueue.commits.keys import Keys
from localqueue.commits.protocol import Wait
from localqueue.commits.turns import turns_at
from localqueue.errors import LeaseLost
from localqueue.idempotency.protocol import IdempotencyStore
from localqueue.idempotency.record import IdempotencyRecord
from localqueue.idempotency.records import Found, IdempotencyRecords
from localqueue.message import QueueMessage
from localqueue.outcome import describe_error
from localqueue.stores.records import RecordChange

LONGEST_WAIT = 5.0
"""A held key is asked for again by then: its holder may have ended early."""
LEASE = "lease"
INLINE = "inline"


class Ledger:
    """The idempotency store of a queue; ``shares`` says whether it is in the queue's own store."""

    def __init__(self, given: IdempotencyStore, home: Home) -> None:
        self._home = home
        in_records = isinstance(given, IdempotencyRecords)
        self.shares = (
            home.keeps_records
            and isinstance(given, IdempotencyRecords)
            and home.is_place_of(given.store)
        )
        self._book: _Book
        if self.shares:
            self._book = IdempotencyRecords.of(home.store)
        elif isinstance(given, IdempotencyRecords):
            self._book = given
        else:
            self._book = _Loose(given)
        # Without compare-and-set, threads of this process at least take turns.
        self._turns = None if in_records else turns_at(given)

    def claim(self, message: QueueMessage[Any]) -> IdempotencyRecord | Wait | None:
        """None: the key is this delivery's. A record: the work is done. Wait: it is somebody's.

        LeaseLost when the lease of this delivery is over.
        """
        with self._turn(message):
            return self._claim(message)

    def check_held(self, message: QueueMessage[Any]) -> None:
        """LeaseLost when another delivery has taken the key."""
        record = self._book.find(Keys.of(message).scoped).record
        if record is not None and not _is_of(record, message):
            raise _taken(message)

    def extended(self, message: QueueMessage[Any], seconds: float) -> None:
        """Move the deadline; where the lease itself can be looked at there is none to move."""
        if self.shares:
            return
        key = Keys.of(message).scoped
        with self._turn(message):
            present = self._book.find(key)
            if present.record is not None and _is_of(present.record, message):
                until = self._home.wall() + seconds
                self._book.replace(key, present, self._pending(message, present.record, until))

    def success(
        self, message: QueueMessage[Any], result_key: str | None, result: Any
    ) -> list[RecordChange]:
        """For the queue's own transaction: the key succeeded."""
        key = Keys.of(message).scoped
        present = self._book.find(key)
        record = self._succeeded(message, present.record, result_key, result)
        return self._book.changes(key, present, record)

    def save_success(self, message: QueueMessage[Any], result_key: str | None, result: Any) -> None:
        """Now, in its own store."""
        key = Keys.of(message).scoped
        with self._turn(message):
            while True:
                present = self._book.find(key)
                record = self._succeeded(message, present.record, result_key, result)
                if self._book.replace(key, present, record):
                    return

    def failure(self, message: QueueMessage[Any], error: BaseException) -> list[RecordChange]:
        """The key is free again; in its own store at once, else with the settlement."""
        key = Keys.of(message).scoped
        with self._turn(message):
            while True:
                present = self._book.find(key)
                if present.record is None or not _is_of(present.record, message):
                    return []
                record = self._failed(present.record, error)
                if self.shares:
                    return self._book.changes(key, present, record)
                if self._book.replace(key, present, record):
                    return []

    # --- inside ---------------------------------------------------------------------------------
    def _turn(self, message: QueueMessage[Any]) -> AbstractContextManager[object]:
        if self._turns is None:
            return contextlib.nullcontext()
        return self._turns.of(Keys.of(message).scoped)

    def _claim(self, message: QueueMessage[Any]) -> IdempotencyRecord | Wait | None:
        keys = Keys.of(message)
        until = message.leased_until or self._home.wall()
        while True:
            present = self._book.find(keys.scoped)
            record = present.record
            if record is not None and record.is_done:
                return record
            done = self._saved_by_user(keys)
            if done is not None:
                return done
            # After the record was read: whoever begins later replaces it, and is not overlooked.
            self._home.check_held(message)
            seconds = 0.0 if record is None else self._held_elsewhere(record, message)
            if seconds > 0:
                return Wait(min(seconds, LONGEST_WAIT))
            if self._book.replace(keys.scoped, present, self._pending(message, record, until)):
                return None

    def _saved_by_user(self, keys: Keys) -> IdempotencyRecord | None:
        record = self._book.find(keys.key).record
        if record is None or not record.is_done:
            return None
        # What another queue's worker wrote under "other:key" is not a user's record of that name.
        queue, key = record.metadata.get("queue"), record.metadata.get("dedupe_key")
        if isinstance(queue, str) and isinstance(key, str) and Keys(queue, key).scoped == keys.key:
            return None
        return record

    def _held_elsewhere(self, record: IdempotencyRecord, message: QueueMessage[Any]) -> float:
        """How long another delivery has the key for sure; 0 when it is free."""
        lease, holder = record.metadata.get(LEASE), record.metadata.get("message_id")
        if record.status != "pending" or not isinstance(lease, dict) or _is_of(record, message):
            return 0.0
        left = self._home.seconds_left(str(holder), lease.get("token"))
        if left is not None or holder == message.id:
            return left or 0.0
        until = lease.get("until")
        return max(0.0, until - self._home.wall()) if isinstance(until, (int, float)) else 0.0

    def _pending(
        self, message: QueueMessage[Any], before: IdempotencyRecord | None, until: float
    ) -> IdempotencyRecord:
        metadata = self._about(message, before) | {LEASE: {"token": message.token, "until": until}}
        first_seen_at = self._home.wall() if before is None else before.first_seen_at
        return IdempotencyRecord("pending", first_seen_at, metadata=metadata)

    def _succeeded(
        self,
        message: QueueMessage[Any],
        before: IdempotencyRecord | None,
        result_key: str | None,
        result: Any,
    ) -> IdempotencyRecord:
        if before is not None and self._held_elsewhere(before, message) > 0:
            raise _taken(message)
        metadata = self._about(message, before)
        if result_key == INLINE:
            metadata["result"] = result
        wall = self._home.wall()
        first_seen_at = wall if before is None else before.first_seen_at
        return IdempotencyRecord("succeeded", first_seen_at, wall, result_key, metadata)

    def _failed(self, before: IdempotencyRecord, error: BaseException) -> IdempotencyRecord:
        metadata = {name: kept for name, kept in before.metadata.items() if name != LEASE}
        return replace(
            before,
            status="failed",
            completed_at=self._home.wall(),
            metadata=metadata | {"last_error": describe_error(error)},
        )

    def _about(
        self, message: QueueMessage[Any], before: IdempotencyRecord | None
    ) -> dict[str, Any]:
        kept = {} if before is None else before.metadata
        return {name: value for name, value in kept.items() if name != LEASE} | {
            "queue": message.queue,
            "message_id": message.id,
            "dedupe_key": Keys.of(message).key,
        }


class _Book(Protocol):
    """Records with compare-and-set."""

    def find(self, key: str) -> Found: ...

    def replace(self, key: str, present: Found, record: IdempotencyRecord | None) -> bool: ...

    def changes(
        self, key: str, present: Found, record: IdempotencyRecord | None
    ) -> list[RecordChange]: ...


class _Loose:
    """A user's own store, which has no compare-and-set: the last save wins."""

    def __init__(self, given: IdempotencyStore) -> None:
        self._given = given

    def find(self, key: str) -> Found:
        record = self._given.load(key)
        return Found(record, 0 if record is None else 1)

    def replace(self, key: str, present: Found, record: IdempotencyRecord | None) -> bool:
        if record is None:
            self._given.delete(key)
        else:
            self._given.save(key, record)
        return True

    def changes(
        self, key: str, present: Found, record: IdempotencyRecord | None
    ) -> list[RecordChange]:
        raise AssertionError("a store of the user's own shares no transaction")


def _is_of(record: IdempotencyRecord, message: QueueMessage[Any]) -> bool:
    """Whether this very delivery has the key."""
    lease = record.metadata.get(LEASE)
    return (
        record.status == "pending"
        and record.metadata.get("message_id") == message.id
        and isinstance(lease, dict)
        and lease.get("token") == message.token
    )


def _taken(message: QueueMessage[Any]) -> LeaseLost:
    return LeaseLost(
        f"the key {Keys.of(message).key!r} of queue {message.queue!r} was taken by another"
        " delivery; the result of this one does not count"
    )
