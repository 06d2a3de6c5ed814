"""Records of which some have a date, and can be found and forgotten by their age.

What has a date has an index record too, whose key begins with it, so that what is old is found
without reading what is not.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Generic, NamedTuple, TypeVar

from localqueue.checks import check_key, check_seconds
from localqueue.clock import Now
from localqueue.errors import RecordConflict
from localqueue.stores.record_view import ANY_TIME, RecordView
from localqueue.stores.records import Record, RecordChange

SLICE = 500
T = TypeVar("T")


class Found(NamedTuple, Generic[T]):
    """A record with its version, to change it only if nobody else did; version 0 for none."""

    record: T | None
    version: int


class DatedRecords(RecordView, ABC, Generic[T]):
    """One record per key, changed only together with its index.

    A kind of record says which kinds it and its index are in the store, what its keys are called
    in errors, how it is written and read, and what its date is.
    """

    _kind: ClassVar[str]
    _index_kind: ClassVar[str]
    _key_name: ClassVar[str]

    @abstractmethod
    def _encode(self, record: T) -> bytes: ...

    @abstractmethod
    def _decode(self, kept: bytes, key: str) -> T: ...

    @abstractmethod
    def _date(self, record: T) -> float | None:
        """What its age is counted from; None for a record that does not grow old."""

    def load(self, key: str) -> T | None:
        return self.find(key).record

    def save(self, key: str, record: T) -> None:
        while not self.replace(key, self.find(key), record):
            pass  # somebody saved in between; this save is the later one

    def delete(self, key: str) -> None:
        while (present := self.find(key)).version and not self.replace(key, present, None):
            pass

    def find(self, key: str) -> Found[T]:
        """The record with its version."""
        check_key(self._key_name, key)
        with self._asking():
            found = self.store.load_record(self._kind, key, now=self._now())
        if found is None:
            return Found(None, 0)
        return Found(self._decode(found.value, key), found.version)

    def replace(self, key: str, present: Found[T], record: T | None) -> bool:
        """Save, or delete for None, if what is there is still ``present``; else False."""
        try:
            with self._asking():
                self.store.change_records(self.changes(key, present, record), now=self._now())
        except RecordConflict:
            return False
        return True

    def changes(self, key: str, present: Found[T], record: T | None) -> list[RecordChange]:
        """What ``replace`` would write, for a transaction of the store with other things in it."""
        check_key(self._key_name, key)
        value = None if record is None else self._encode(record)
        changes = [RecordChange(self._kind, key, value, present.version)]
        before, after = self._index_key(key, present.record), self._index_key(key, record)
        if before is not None and before != after:
            changes.append(RecordChange(self._index_kind, before, None))
        if after is not None and before != after:
            changes.append(RecordChange(self._index_kind, after, key.encode()))
        return changes

    def _prune(self, older_than: float, now: float) -> int:
        """Forget what is dated at least ``older_than`` seconds before ``now``; how many."""
        pruned = 0
        for index in self._old(older_than, now):
            key = index.value.decode()
            present = self.find(key)
            if self._index_key(key, present.record) == index.key:
                pruned += self.replace(key, present, None)
        return pruned

    def _count_old(self, older_than: float, now: float) -> int:
        """How many ``_prune`` would forget."""
        return sum(1 for _ in self._old(older_than, now))

    def _old(self, older_than: float, now: float) -> Iterator[Record]:
        latest = now - check_seconds("older_than", older_than)
        after = ""
        while True:
            with self._asking():
                found = self.store.scan_records(
                    self._index_kind, after=after, limit=SLICE, now=self._now()
                )
            for index in found:
                if float(index.key.partition(":")[0]) > latest:
                    return
                yield index
            if len(found) < SLICE:
                return
            after = found[-1].key

    def _index_key(self, key: str, record: T | None) -> str | None:
        """Sorts by the date; a digest, because a key may be as long as a key can be."""
        date = None if record is None else self._date(record)
        if date is None:
            return None
        digest = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
        return f"{max(0.0, date):020.6f}:{digest}"

    def _now(self) -> Now:
        return ANY_TIME
