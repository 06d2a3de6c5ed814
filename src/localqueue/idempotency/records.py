"""A ledger in the records of a queue store: beside its messages, or in a file of its own.

What succeeded has an index record whose key begins with the time of the success, so that what is
old is found without reading what is not.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Self

from localqueue.checks import check_key, check_seconds
from localqueue.errors import RecordConflict
from localqueue.idempotency.record import IdempotencyRecord, decode_record, encode_record
from localqueue.stores.protocol import QueueStore
from localqueue.stores.records import Record, RecordChange

KIND = "ledger"
INDEX = "ledger-done"
SLICE = 500
ANY_TIME = 0.0
"""These records have no end of life of their own, so the store need not know how late it is."""


class Found(NamedTuple):
    """A record with its version, to change it only if nobody else did; version 0 for none."""

    record: IdempotencyRecord | None
    version: int


class IdempotencyRecords:
    """A ledger in any store of localqueue, for example that of a queue: ``of(queue.store)``."""

    def __init__(self, store: QueueStore) -> None:
        self.store = store

    @classmethod
    def of(cls, store: QueueStore) -> IdempotencyRecords:
        """A view on the records of a store; closing it leaves the store open."""
        return IdempotencyRecords(store)

    def load(self, key: str) -> IdempotencyRecord | None:
        return self.find(key).record

    def save(self, key: str, record: IdempotencyRecord) -> None:
        while not self.replace(key, self.find(key), record):
            pass  # somebody saved in between; this save is the later one

    def delete(self, key: str) -> None:
        while (present := self.find(key)).version and not self.replace(key, present, None):
            pass

    def prune_completed(self, *, older_than: float, now: float) -> int:
        """Forget keys that succeeded at least ``older_than`` seconds before ``now``; how many."""
        pruned = 0
        for index in self._old(older_than, now):
            key = index.value.decode()
            present = self.find(key)
            if present.record is not None and _index_key(key, present.record) == index.key:
                pruned += self.replace(key, present, None)
        return pruned

    def count_completed_older_than(self, *, older_than: float, now: float) -> int:
        """How many ``prune_completed`` would forget."""
        return sum(1 for _ in self._old(older_than, now))

    def find(self, key: str) -> Found:
        """The record with its version."""
        check_key("idempotency key", key)
        with self._asking():
            found = self.store.load_record(KIND, key, now=ANY_TIME)
        if found is None:
            return Found(None, 0)
        return Found(decode_record(found.value, key), found.version)

    def replace(self, key: str, present: Found, record: IdempotencyRecord | None) -> bool:
        """Save, or delete for None, if what is there is still ``present``; else False."""
        try:
            with self._asking():
                self.store.change_records(self.changes(key, present, record), now=ANY_TIME)
        except RecordConflict:
            return False
        return True

    def changes(
        self, key: str, present: Found, record: IdempotencyRecord | None
    ) -> list[RecordChange]:
        """What ``replace`` would write, for a transaction of the store with other things in it."""
        check_key("idempotency key", key)
        value = None if record is None else encode_record(record)
        changes = [RecordChange(KIND, key, value, present.version)]
        before = None if present.record is None else _index_key(key, present.record)
        after = None if record is None else _index_key(key, record)
        if before is not None and before != after:
            changes.append(RecordChange(INDEX, before, None))
        if after is not None and before != after:
            changes.append(RecordChange(INDEX, after, key.encode()))
        return changes

    def close(self) -> None:
        """Leave the store to whoever opened it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _asking(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def _old(self, older_than: float, now: float) -> Iterator[Record]:
        latest = now - check_seconds("older_than", older_than)
        after = ""
        while True:
            with self._asking():
                found = self.store.scan_records(INDEX, after=after, limit=SLICE, now=ANY_TIME)
            for index in found:
                if float(index.key.partition(":")[0]) > latest:
                    return
                yield index
            if len(found) < SLICE:
                return
            after = found[-1].key


def _index_key(key: str, record: IdempotencyRecord) -> str | None:
    """Sorts by the success; a digest, because a key may be as long as a key can be."""
    if not record.is_done:
        return None
    at = record.first_seen_at if record.completed_at is None else record.completed_at
    digest = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    return f"{max(0.0, at):020.6f}:{digest}"
