"""A durable queue that starts as one file and grows to a cluster without changing your code.

``PersistentQueue("jobs")`` is all that a simple use needs. Everything public is here; the words of
the store contract, for those who write a store, are in ``localqueue.stores.protocol``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from localqueue.adapters.dispatch import CallbackDispatcher
from localqueue.clock import (
    SYSTEM_CLOCK,
    Clock,
    SystemClock,
)
from localqueue.errors import (
    AdapterClosed,
    CompatibilityWarning,
    ConfigurationError,
    DamagedMessage,
    DuplicateConflict,
    InvalidArgument,
    InvalidMessage,
    InvalidMessageType,
    JournalForeign,
    JournalTrimmed,
    LeaseLost,
    LocalQueueError,
    RecordConflict,
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
    WrongType,
)
from localqueue.message import (
    QueueMessage,
    QueueStats,
    Receipt,
    State,
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
    from localqueue.stores.sqlite.operations.backup import BackupReport
    from localqueue.stores.sqlite.operations.check import CheckReport
    from localqueue.stores.sqlite.operations.invariants import CheckProblem
    from localqueue.stores.sqlite.operations.salvage import LostMessage, SalvageReport
    from localqueue.stores.sqlite.operations.vacuum import VacuumReport

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
    "InProcessNotification",
    "InvalidArgument",
    "InvalidMessage",
    "InvalidMessageType",
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
    "PersistentQueue",
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
    "RejectingBackpressure",
    "RemoteQueuePlacement",
    "ResultPolicy",
    "ReturnStoredResult",
    "RoutingPolicy",
    "SQLiteQueueStore",
    "SagaCommit",
    "SalvageReport",
    "SettingsOverwritten",
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
    "ThrottlingBackpressure",
    "TransactionalOutboxCommit",
    "TwoPhaseCommit",
    "UnsupportedByStore",
    "VacuumReport",
    "WaitableNotification",
    "WrongType",
    "__version__",
    "open_store",
    "subscriber_queue_name",
]


# Loaded when asked for: asyncio and the reading of package metadata cost as much as all the rest.
_NOTIFICATIONS = frozenset(
    ("AsyncNotification", "AsyncioNotification", "CallbackNotification", "InProcessNotification")
)
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
