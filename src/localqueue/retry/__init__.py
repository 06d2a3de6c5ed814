"""Retries that remember: attempts are recorded under a key and survive the process.

from localqueue.retry import key_from_argument, persistent_retry

@persistent_retry(key_fn=key_from_argument("job_id"), max_tries=3)
def run(job_id: str) -> None: ...
"""

from localqueue.errors import AttemptStoreLockedError, PersistentRetryExhausted
from localqueue.retry.async_retrying import PersistentAsyncRetrying
from localqueue.retry.decorators import persistent_async_retry, persistent_retry
from localqueue.retry.default_store import (
    close_default_store,
    configure_default_store,
    configure_default_store_factory,
)
from localqueue.retry.keys import idempotency_key_from_id, key_from_argument, key_from_attr
from localqueue.retry.memory import MemoryAttemptStore
from localqueue.retry.protocol import AttemptStore
from localqueue.retry.record import RetryRecord
from localqueue.retry.record_store import RecordAttemptStore
from localqueue.retry.retrying import PersistentRetrying
from localqueue.retry.sqlite import SQLiteAttemptStore

__all__ = [
    "AttemptStore",
    "AttemptStoreLockedError",
    "MemoryAttemptStore",
    "PersistentAsyncRetrying",
    "PersistentRetryExhausted",
    "PersistentRetrying",
    "RecordAttemptStore",
    "RetryRecord",
    "SQLiteAttemptStore",
    "close_default_store",
    "configure_default_store",
    "configure_default_store_factory",
    "idempotency_key_from_id",
    "key_from_argument",
    "key_from_attr",
    "persistent_async_retry",
    "persistent_retry",
]
