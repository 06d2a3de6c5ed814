"""Words that the tests of commits share."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from localqueue import (
    CompatibilityWarning,
    EffectivelyOnceDelivery,
    LocalAtomicCommit,
    MemoryQueueStore,
    NoResultPolicy,
    PersistentQueue,
    ReturnStoredResult,
)
from localqueue.clock import Now
from localqueue.errors import StoreBusy
from localqueue.message import QueueMessage
from localqueue.policies import CommitPolicy, ResultPolicy
from localqueue.stores.protocol import StoredMessage
from localqueue.stores.records import Record, RecordChange
from localqueue.testing import ManualClock
from localqueue.testing.commit_contract import Worker

__all__ = [
    "NO_RESULT",
    "BusyStore",
    "ManualClock",
    "Path",
    "Worker",
    "effectively_once",
    "leased",
    "put_and_lease",
]


def effectively_once(
    store: Any,
    ledger: Any,
    commit: CommitPolicy | None = None,
    *,
    results: ResultPolicy | None = None,
    clock: ManualClock | None = None,
    name: str = "jobs",
) -> PersistentQueue[Any]:
    with warnings.catch_warnings():
        # Of stores in memory, and of a missing ledger.
        warnings.simplefilter("ignore", CompatibilityWarning)
        return PersistentQueue(
            name,
            store=store,
            clock=clock or ManualClock(),
            delivery_policy=EffectivelyOnceDelivery(
                ledger,
                ReturnStoredResult() if results is None else results,
                LocalAtomicCommit() if commit is None else commit,
            ),
        )


NO_RESULT = NoResultPolicy()


class BusyStore(MemoryQueueStore):
    """A store of which some verbs for records are refused, as by another process that writes."""

    def __init__(self) -> None:
        super().__init__()
        self.busy: set[str] = set()

    def load_record(self, kind: str, key: str, *, now: Now) -> Record | None:
        self._ask("load_record")
        return super().load_record(kind, key, now=now)

    def scan_records(self, kind: str, **options: Any) -> list[Record]:
        self._ask("scan_records")
        return super().scan_records(kind, **options)

    def change_records(self, changes: Sequence[RecordChange], *, now: Now) -> list[int]:
        self._ask("change_records")
        return super().change_records(changes, now=now)

    def read(self, queue: str, message_id: str) -> StoredMessage | None:
        self._ask("read")
        return super().read(queue, message_id)

    def _ask(self, verb: str) -> None:
        if verb in self.busy:
            raise StoreBusy("another process held it for longer than the timeout")


def leased(worker: Worker) -> QueueMessage[Any]:
    message = worker.lease()
    assert message is not None
    return message


def put_and_lease(worker: Worker, value: Any = "value", key: str = "key") -> QueueMessage[Any]:
    worker.queue.put(value, dedupe_key=key)
    return leased(worker)
