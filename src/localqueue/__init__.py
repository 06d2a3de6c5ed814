"""A durable queue that starts as one file and grows to a cluster without changing your code.

``PersistentQueue("jobs")`` is all that a simple use needs. Everything public is here; the words of
the store contract, for those who write a store, are in ``localqueue.stores.protocol``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from localqueue.adapters.dispatch import (
    CallbackDispatcher,
    ThreadedDispatcher,
    WorkerPoolDispatcher,
)
from localqueue.clock import (
    SYSTEM_CLOCK,
    Clock,
    SystemClock,
)
from localqueue.errors import (
    AdapterClosed,
    AttemptStoreLockedError,
    CompatibilityWarning,
    ConfigurationError,
    DamagedMessage,
    DuplicateConflict,
    HandlerCancelled,
    HandlerDied,
    HandlerTimeout,
    IdempotencyStoreLockedError,
    InvalidArgument,
    InvalidMessage,
    InvalidMessageType,
    InvalidResult,
    JournalForeign,
    JournalTrimmed,
    LeaseLost,
    LocalQueueError,
    PayloadMismatch,
    PersistentRetryExhausted,
    RecordConflict,
    ResultStoreLockedError,
    SettingsOverwritten,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreMissing,
    StoreMoved,
    StoreReadOnly,
    StoreUnsupported,
    UnsupportedByStore,
    WorkerStopped,
    WrongType,
)
from localqueue.message import (
    QueueMessage,
    QueueStats,
    Receipt,
    State,
)
from localqueue.outcome import (
    Reject,
    Retry,
    Snooze,
)
from localqueue.policies import (
    AT_LEAST_ONCE_DELIVERY,
    BYTES_CODEC,
    CRASH_LIMIT,
    DEAD_LETTER_QUEUE,
    DEDUPE_KEY_SUPPORT,
    EXPLICIT_ACKNOWLEDGEMENT,
    FIFO_READY_ORDERING,
    FIXED_LEASE_TIMEOUT,
    JOURNAL,
    JSON_CODEC,
    LOCAL_AT_LEAST_ONCE,
    LOCAL_ATOMIC_COMMIT,
    LOCAL_QUEUE_PLACEMENT,
    NO_DEDUPLICATION,
    NO_DISPATCHER,
    NO_EXPIRY,
    NO_NOTIFICATION,
    NO_RESULT_POLICY,
    NO_SUBSCRIPTIONS,
    POINT_TO_POINT_ROUTING,
    PULL_CONSUMPTION,
    RETURN_STORED_RESULT,
    TRANSACTIONAL_OUTBOX_COMMIT,
    TWO_PHASE_COMMIT,
    AcknowledgementPolicy,
    AtLeastOnceDelivery,
    AtMostOnceDelivery,
    AwaitableNotification,
    BackpressurePolicy,
    BestEffortOrdering,
    BoundedBackpressure,
    BytesCodec,
    CodecPolicy,
    CommitPolicy,
    ConsumptionPolicy,
    CrashLimit,
    CrashLimitPolicy,
    DeadLetterPolicy,
    DeadLetterQueue,
    DedupeKeySupport,
    DeduplicationPolicy,
    DeliveryPolicy,
    DispatchPolicy,
    DropNewestBackpressure,
    DropOldestBackpressure,
    DynamicFanoutSubscriptions,
    EffectivelyOnceDelivery,
    ExpiryPolicy,
    ExplicitAcknowledgement,
    FifoReadyOrdering,
    FixedLeaseTimeout,
    Journal,
    JournalPolicy,
    JsonCodec,
    LeasePolicy,
    LeasingDispatchPolicy,
    LocalAtomicCommit,
    LocalityPolicy,
    LocalQueuePlacement,
    MessageTTL,
    NoDeduplication,
    NoDispatcher,
    NoExpiry,
    NoNotification,
    NoResultPolicy,
    NoSubscriptions,
    NotificationPolicy,
    OrderingKeys,
    OrderingPolicy,
    OverflowBackpressure,
    Participant,
    PointToPointRouting,
    PriorityOrdering,
    PublishSubscribeRouting,
    PullConsumption,
    PushConsumption,
    QueuePolicySet,
    QueueSemantics,
    RejectingBackpressure,
    RemoteQueuePlacement,
    ResultPolicy,
    ReturnStoredResult,
    RoutingPolicy,
    SagaCommit,
    SagaStep,
    StaticFanoutSubscriptions,
    SubscriptionPolicy,
    ThrottlingBackpressure,
    TransactionalOutboxCommit,
    TwoPhaseCommit,
    WaitableNotification,
    subscriber_queue_name,
)
from localqueue.queue import PersistentQueue
from localqueue.spec import (
    QoS,
    QueueSpec,
)
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.open import open_store
from localqueue.stores.protocol import (
    Atomicity,
    Cancelled,
    JournalEvent,
    JournalReader,
    LeaseAnswer,
    QueueStore,
    StoreCapabilities,
)
from localqueue.stores.settings import QueueSettings
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.worker_config import PersistentWorkerConfig

if TYPE_CHECKING:
    from localqueue.adapters.notification import (
        AsyncioNotification,
        AsyncNotification,
        CallbackNotification,
        InProcessNotification,
    )
    from localqueue.aio import AwaitableQueue
    from localqueue.commits.sqlite_participant import SQLiteParticipant
    from localqueue.stores.sqlite.operations.backup import BackupReport
    from localqueue.stores.sqlite.operations.check import CheckReport
    from localqueue.stores.sqlite.operations.invariants import CheckProblem
    from localqueue.stores.sqlite.operations.salvage import LostMessage, SalvageReport
    from localqueue.stores.sqlite.operations.vacuum import VacuumReport
    from localqueue.worker import persistent_async_worker, persistent_worker

    __version__: str

__all__ = [
    "AT_LEAST_ONCE_DELIVERY",
    "BYTES_CODEC",
    "CRASH_LIMIT",
    "DEAD_LETTER_QUEUE",
    "DEDUPE_KEY_SUPPORT",
    "EXPLICIT_ACKNOWLEDGEMENT",
    "FIFO_READY_ORDERING",
    "FIXED_LEASE_TIMEOUT",
    "JOURNAL",
    "JSON_CODEC",
    "LOCAL_ATOMIC_COMMIT",
    "LOCAL_AT_LEAST_ONCE",
    "LOCAL_QUEUE_PLACEMENT",
    "NO_DEDUPLICATION",
    "NO_DISPATCHER",
    "NO_EXPIRY",
    "NO_NOTIFICATION",
    "NO_RESULT_POLICY",
    "NO_SUBSCRIPTIONS",
    "POINT_TO_POINT_ROUTING",
    "PULL_CONSUMPTION",
    "RETURN_STORED_RESULT",
    "SYSTEM_CLOCK",
    "TRANSACTIONAL_OUTBOX_COMMIT",
    "TWO_PHASE_COMMIT",
    "AcknowledgementPolicy",
    "AdapterClosed",
    "AsyncNotification",
    "AsyncioNotification",
    "AtLeastOnceDelivery",
    "AtMostOnceDelivery",
    "Atomicity",
    "AttemptStoreLockedError",
    "AwaitableNotification",
    "AwaitableQueue",
    "BackpressurePolicy",
    "BackupReport",
    "BestEffortOrdering",
    "BoundedBackpressure",
    "BytesCodec",
    "CallbackDispatcher",
    "CallbackNotification",
    "Cancelled",
    "CheckProblem",
    "CheckReport",
    "Clock",
    "CodecPolicy",
    "CommitPolicy",
    "CompatibilityWarning",
    "ConfigurationError",
    "ConsumptionPolicy",
    "CrashLimit",
    "CrashLimitPolicy",
    "DamagedMessage",
    "DeadLetterPolicy",
    "DeadLetterQueue",
    "DedupeKeySupport",
    "DeduplicationPolicy",
    "DeliveryPolicy",
    "DispatchPolicy",
    "DropNewestBackpressure",
    "DropOldestBackpressure",
    "DuplicateConflict",
    "DynamicFanoutSubscriptions",
    "EffectivelyOnceDelivery",
    "ExpiryPolicy",
    "ExplicitAcknowledgement",
    "FifoReadyOrdering",
    "FixedLeaseTimeout",
    "HandlerCancelled",
    "HandlerDied",
    "HandlerTimeout",
    "IdempotencyStoreLockedError",
    "InProcessNotification",
    "InvalidArgument",
    "InvalidMessage",
    "InvalidMessageType",
    "InvalidResult",
    "Journal",
    "JournalEvent",
    "JournalForeign",
    "JournalPolicy",
    "JournalReader",
    "JournalTrimmed",
    "JsonCodec",
    "LeaseAnswer",
    "LeaseLost",
    "LeasePolicy",
    "LeasingDispatchPolicy",
    "LocalAtomicCommit",
    "LocalQueueError",
    "LocalQueuePlacement",
    "LocalityPolicy",
    "LostMessage",
    "MemoryQueueStore",
    "MessageTTL",
    "NoDeduplication",
    "NoDispatcher",
    "NoExpiry",
    "NoNotification",
    "NoResultPolicy",
    "NoSubscriptions",
    "NotificationPolicy",
    "OrderingKeys",
    "OrderingPolicy",
    "OverflowBackpressure",
    "Participant",
    "PayloadMismatch",
    "PersistentQueue",
    "PersistentRetryExhausted",
    "PersistentWorkerConfig",
    "PointToPointRouting",
    "PriorityOrdering",
    "PublishSubscribeRouting",
    "PullConsumption",
    "PushConsumption",
    "QoS",
    "QueueMessage",
    "QueuePolicySet",
    "QueueSemantics",
    "QueueSettings",
    "QueueSpec",
    "QueueStats",
    "QueueStore",
    "Receipt",
    "RecordConflict",
    "Reject",
    "RejectingBackpressure",
    "RemoteQueuePlacement",
    "ResultPolicy",
    "ResultStoreLockedError",
    "Retry",
    "ReturnStoredResult",
    "RoutingPolicy",
    "SQLiteParticipant",
    "SQLiteQueueStore",
    "SagaCommit",
    "SagaStep",
    "SalvageReport",
    "SettingsOverwritten",
    "Snooze",
    "State",
    "StaticFanoutSubscriptions",
    "StoreBusy",
    "StoreCapabilities",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreMissing",
    "StoreMoved",
    "StoreReadOnly",
    "StoreUnsupported",
    "SubscriptionPolicy",
    "SystemClock",
    "ThreadedDispatcher",
    "ThrottlingBackpressure",
    "TransactionalOutboxCommit",
    "TwoPhaseCommit",
    "UnsupportedByStore",
    "VacuumReport",
    "WaitableNotification",
    "WorkerPoolDispatcher",
    "WorkerStopped",
    "WrongType",
    "__version__",
    "open_store",
    "persistent_async_worker",
    "persistent_worker",
    "subscriber_queue_name",
]


# Loaded when asked for: asyncio and the reading of package metadata cost as much as all the rest.
_NOTIFICATIONS = frozenset(
    ("AsyncNotification", "AsyncioNotification", "CallbackNotification", "InProcessNotification")
)
_WORKERS = frozenset(("persistent_async_worker", "persistent_worker"))
_OPERATIONS = {
    "BackupReport": "backup",
    "CheckProblem": "invariants",
    "CheckReport": "check",
    "LostMessage": "salvage",
    "SalvageReport": "salvage",
    "VacuumReport": "vacuum",
}

if not TYPE_CHECKING:  # a type checker would take any name for granted

    def __getattr__(name: str) -> Any:
        if name in _NOTIFICATIONS:
            from localqueue.adapters import notification

            return getattr(notification, name)
        if name == "AwaitableQueue":
            from localqueue.aio import AwaitableQueue

            return AwaitableQueue
        if name in _WORKERS:
            from localqueue import worker

            return getattr(worker, name)
        if name == "SQLiteParticipant":
            from localqueue.commits.sqlite_participant import SQLiteParticipant

            return SQLiteParticipant
        if name in _OPERATIONS:
            from importlib import import_module

            module = import_module(f"localqueue.stores.sqlite.operations.{_OPERATIONS[name]}")
            return getattr(module, name)
        if name == "__version__":
            from importlib.metadata import version

            return version("localqueue")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
