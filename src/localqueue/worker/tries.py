"""The tries of one message inside its lease, on the account of the message's failures.

A try that fails is recorded at once, so that it counts even if the process dies before the message
is settled. The settlement adds what failed to the message, whether it charges for the last try or
not, and the record goes with it.
"""

from __future__ import annotations

import time
from typing import Any

from localqueue.clock import StoreTime
from localqueue.errors import UnsupportedByStore
from localqueue.message import QueueMessage
from localqueue.outcome import Release, describe_error
from localqueue.retry.protocol import AttemptStore
from localqueue.retry.record import RetryRecord, decode_record, encode_record
from localqueue.stores.protocol import QueueStore
from localqueue.stores.records import RecordChange

KIND = "attempt"
KEPT_FOR = 30 * 86_400.0
"""For records whose message was removed by others: nothing else would remove them."""


class Tries:
    """An attempt store for one message and one delivery; see ``AttemptStore``."""

    reads_instantly = True

    def __init__(
        self,
        message: QueueMessage[Any],
        store: QueueStore,
        when: StoreTime,
        given: AttemptStore | None,
        *,
        clear_on_success: bool,
        count_crashes: bool,
    ) -> None:
        self.message = message
        self.uncounted = False
        """The last try failed in a way that is not retried: nobody counted it."""
        self.last_error: BaseException | None = None
        """What the try raised that was recorded last."""
        self._store = store
        self._when = when
        self._given = given
        self._clear = clear_on_success
        self._count_crashes = count_crashes
        self._key = f"{message.queue}:{message.id}"
        self._record = RetryRecord(message.failures, _first_attempt_at(message))
        self._saved = False

    @property
    def may_be_recorded(self) -> bool:
        """Whether ``open`` has something to read: not at a first delivery."""
        return self.message.attempts > 1 or self._given is not None

    def open(self) -> None:
        """Read what an earlier delivery recorded and could not add to the message. May block."""
        found = self._read()
        if found is None or found.first_attempt_at < _requeued_at(self.message):
            return
        if found.attempts > self._record.attempts:
            self._record = RetryRecord(found.attempts, found.first_attempt_at)

    def failures(self) -> int:
        """How many tries failed in this delivery."""
        return max(1, self.total() - self.message.failures)

    def total(self) -> int:
        """How many tries failed since the message was put, or requeued."""
        return self._record.attempts + self.uncounted

    @property
    def first_attempt_at(self) -> float:
        return self._record.first_attempt_at

    def release(self, delay: float = 0.0) -> Release:
        """A release that charges nothing but the tries that were recorded."""
        recorded = self._record.attempts - self.message.failures
        if recorded <= 0:
            return Release(delay)
        error = self.last_error or "tries failed in a delivery that could not tell of them"
        return Release(delay, describe_error(error), recorded)

    def clearing(self) -> tuple[RecordChange, ...]:
        """What removes the record together with the settlement."""
        return (RecordChange(KIND, self._key, None),) if self._saved else ()

    def succeeded(self) -> None:
        """The message is acknowledged: clear the record in the user's own store. May block."""
        if self._given is not None and self._clear:
            self._given.delete(self.message.id)

    # --- an attempt store -----------------------------------------------------------------------
    def load(self, key: str) -> RetryRecord | None:
        record = self._record
        return RetryRecord(record.attempts, record.first_attempt_at) if record.attempts else None

    def save(self, key: str, record: RetryRecord) -> None:
        self._record = record
        if self._given is not None:
            self._given.save(self.message.id, record)
        elif not record.exhausted:
            # Else the settlement comes next and has it.
            self._write(record)

    def save_if(
        self, key: str, record: RetryRecord | None, *, expected: RetryRecord | None
    ) -> bool:
        """Nobody else counts while this delivery has the lease."""
        if record is None:
            self._record = RetryRecord(0, self._record.first_attempt_at)
            self._remove()
        else:
            self.save(key, record)
        return True

    def delete(self, key: str) -> None:
        """The last try went well. The record is left to the settlement."""
        if self._count_crashes:
            # Counted before it began; should the settlement fail, it is no failure of its own.
            counted = self._record
            self._record = RetryRecord(max(0, counted.attempts - 1), counted.first_attempt_at)

    def prune_exhausted(self, *, older_than: float, now: float) -> int:
        return 0

    def _read(self) -> RetryRecord | None:
        if self._given is not None:
            return self._given.load(self.message.id)
        try:
            found = self._store.load_record(KIND, self._key, now=self._when.now)
        except UnsupportedByStore:
            return None
        if found is None:
            return None
        self._saved = True
        return decode_record(found.value)

    def _write(self, record: RetryRecord) -> None:
        change = RecordChange(KIND, self._key, encode_record(record), ttl=KEPT_FOR)
        try:
            self._store.change_records([change], now=self._when.now)
        except UnsupportedByStore:
            return  # then only the settlement counts
        self._saved = True

    def _remove(self) -> None:
        if self._given is not None:
            self._given.delete(self.message.id)
        elif self._saved:
            self._store.change_records(self.clearing(), now=self._when.now)
            self._saved = False


def _first_attempt_at(message: QueueMessage[Any]) -> float:
    if not message.failures:
        return time.time()
    since = _requeued_at(message)
    begun = [entry["at"] for entry in message.attempt_history if entry["at"] >= since]
    return min(begun, default=time.time())


def _requeued_at(message: QueueMessage[Any]) -> float:
    """When somebody gave the message a fresh budget; what was recorded before does not count."""
    history = message.attempt_history
    return max((entry["at"] for entry in history if entry["type"] == "requeued"), default=0.0)
