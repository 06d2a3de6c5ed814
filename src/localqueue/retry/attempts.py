"""One call's account of its attempts with the store: read, count, give up, clear."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

from localqueue.errors import PersistentRetryExhausted
from localqueue.retry.protocol import AttemptStore, ComparingAttemptStore
from localqueue.retry.record import RetryRecord


class Attempts:
    """The attempts under one key, as this call knows them. Every method may block.

    Another process may work under the same key at the same time: each failed attempt of both is
    counted, and both see the sum.
    """

    def __init__(
        self, store: AttemptStore, key: str, *, clear_on_success: bool, count_crashes: bool
    ) -> None:
        self.key = key
        self.count_crashes = count_crashes
        self.reads_block = not getattr(store, "reads_instantly", False)
        """Whether ``open`` and ``succeeded`` may block."""
        self._store = store
        self._clear = clear_on_success
        self._known: RetryRecord | None = None
        self._begun: int | None = None
        """The number of the attempt that is counted already and has not ended."""

    def open(self) -> RetryRecord | None:
        """What earlier calls left. PersistentRetryExhausted when they spent everything."""
        self._known = self._store.load(self.key)
        if self._known is not None and self._known.exhausted:
            raise self.exhausted()
        return self._known

    def exhausted(self) -> PersistentRetryExhausted:
        return PersistentRetryExhausted(self.key, self._known.attempts if self._known else 0)

    def begin(self, since: float) -> None:
        """An attempt starts. Counted now, so that it counts even if nobody lives to tell."""
        if not self.count_crashes:
            return
        while True:
            record = self._one_more(since)
            if self._replace(record):
                self._begun = record.attempts
                return

    def number(self, since: float) -> int:
        """The number of the attempt that has failed, those of others included."""
        return self._one_more(since).attempts if self._begun is None else self._begun

    def failed(self, since: float, *, exhausted: bool) -> bool:
        """Record the failure. False when the record changed meanwhile: ask for the number again."""
        if self._begun is None:
            record = self._one_more(since)
        elif not exhausted:
            self._begun = None
            return True
        else:
            record = self._known or RetryRecord(self._begun, since)
        if not self._replace(replace(record, exhausted=exhausted or record.exhausted)):
            return False
        self._begun = None
        return True

    def give_up(self) -> None:
        """The budget is spent, although no attempt of this call failed."""
        while self._known is not None and not self._replace(replace(self._known, exhausted=True)):
            pass

    def succeeded(self) -> None:
        """Clear the key, or at least do not count the attempt that went well."""
        if not self._clear:
            self.left()
        elif self._known is not None or self._store.load(self.key) is not None:
            self._store.delete(self.key)

    def left(self) -> None:
        """The attempt ended in a way that is not counted."""
        while self._begun is not None:
            known = self._known
            fewer = (
                None if known is None or known.attempts <= 1
                else replace(known, attempts=known.attempts - 1)
            )  # fmt: skip
            if known is None or self._replace(fewer):
                self._begun = None

    def _one_more(self, since: float) -> RetryRecord:
        known = self._known or RetryRecord(first_attempt_at=since)
        return replace(known, attempts=known.attempts + 1)

    def _replace(self, record: RetryRecord | None) -> bool:
        if save_if(self._store, self.key, record, self._known):
            self._known = record
            return True
        self._known = self._store.load(self.key)
        return False


def save_if(
    store: AttemptStore, key: str, record: RetryRecord | None, expected: RetryRecord | None
) -> bool:
    """Save, or delete for None, if the stored record is the expected one; else False."""
    if isinstance(store, ComparingAttemptStore):
        return store.save_if(key, record, expected=expected)
    with _one_at_a_time:
        if store.load(key) != expected:
            return False
        if record is None:
            store.delete(key)
        else:
            store.save(key, record)
        return True


_one_at_a_time = threading.Lock()
"""For stores that cannot compare: the threads of this process at least do it for them."""


def _after_fork_in_child() -> None:
    # Whoever held it did not come along.
    global _one_at_a_time
    _one_at_a_time = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
