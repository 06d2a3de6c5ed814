"""Words that the tests of commits share."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from localqueue import (
    CompatibilityWarning,
    EffectivelyOnceDelivery,
    LocalAtomicCommit,
    NoResultPolicy,
    PersistentQueue,
    ReturnStoredResult,
)
from localqueue.message import QueueMessage
from localqueue.policies import CommitPolicy, ResultPolicy
from localqueue.testing import ManualClock
from localqueue.testing.commit_contract import Worker

__all__ = ["ManualClock", "Path", "Worker", "effectively_once", "leased", "put_and_lease"]


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


def leased(worker: Worker) -> QueueMessage[Any]:
    message = worker.lease()
    assert message is not None
    return message


def put_and_lease(worker: Worker, value: Any = "value", key: str = "key") -> QueueMessage[Any]:
    worker.queue.put(value, dedupe_key=key)
    return leased(worker)
