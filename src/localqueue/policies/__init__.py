"""Every promise of a queue as a value: one file per concept.

``compatibility`` says which combinations mislead, ``guarantees`` what each one promises.
"""

from localqueue.policies.acknowledgement import (
    EXPLICIT_ACKNOWLEDGEMENT,
    AcknowledgementPolicy,
    ExplicitAcknowledgement,
)
from localqueue.policies.backpressure import (
    BackpressurePolicy,
    BoundedBackpressure,
    DropNewestBackpressure,
    DropOldestBackpressure,
    OverflowBackpressure,
    RejectingBackpressure,
    ThrottlingBackpressure,
)
from localqueue.policies.codec import (
    BYTES_CODEC,
    JSON_CODEC,
    BytesCodec,
    CodecPolicy,
    JsonCodec,
)
from localqueue.policies.commit import (
    LOCAL_ATOMIC_COMMIT,
    TRANSACTIONAL_OUTBOX_COMMIT,
    TWO_PHASE_COMMIT,
    CommitPolicy,
    LocalAtomicCommit,
    Participant,
    SagaCommit,
    SagaStep,
    TransactionalOutboxCommit,
    TwoPhaseCommit,
)
from localqueue.policies.consumption import (
    PULL_CONSUMPTION,
    ConsumptionPolicy,
    PullConsumption,
    PushConsumption,
)
from localqueue.policies.crash_limit import (
    CRASH_LIMIT,
    CrashLimit,
    CrashLimitPolicy,
)
from localqueue.policies.dead_letters import (
    DEAD_LETTER_QUEUE,
    DeadLetterPolicy,
    DeadLetterQueue,
)
from localqueue.policies.deduplication import (
    DEDUPE_KEY_SUPPORT,
    NO_DEDUPLICATION,
    DedupeKeySupport,
    DeduplicationPolicy,
    NoDeduplication,
)
from localqueue.policies.delivery import (
    AT_LEAST_ONCE_DELIVERY,
    AtLeastOnceDelivery,
    AtMostOnceDelivery,
    DeliveryPolicy,
    EffectivelyOnceDelivery,
)
from localqueue.policies.dispatch import (
    NO_DISPATCHER,
    DispatchPolicy,
    LeasingDispatchPolicy,
    NoDispatcher,
)
from localqueue.policies.expiry import (
    NO_EXPIRY,
    ExpiryPolicy,
    MessageTTL,
    NoExpiry,
)
from localqueue.policies.journal import (
    JOURNAL,
    Journal,
    JournalPolicy,
)
from localqueue.policies.leases import (
    FIXED_LEASE_TIMEOUT,
    FixedLeaseTimeout,
    LeasePolicy,
)
from localqueue.policies.locality import (
    LOCAL_QUEUE_PLACEMENT,
    LocalityPolicy,
    LocalQueuePlacement,
    RemoteQueuePlacement,
)
from localqueue.policies.notification import (
    NO_NOTIFICATION,
    AwaitableNotification,
    NoNotification,
    NotificationPolicy,
    WaitableNotification,
)
from localqueue.policies.ordering import (
    FIFO_READY_ORDERING,
    BestEffortOrdering,
    FifoReadyOrdering,
    OrderingKeys,
    OrderingPolicy,
    PriorityOrdering,
)
from localqueue.policies.policy_set import (
    QueuePolicySet,
)
from localqueue.policies.resolve import (
    resolve,
)
from localqueue.policies.resolved import (
    ResolvedPolicies,
    SpecLike,
)
from localqueue.policies.results import (
    NO_RESULT_POLICY,
    RETURN_STORED_RESULT,
    NoResultPolicy,
    ResultPolicy,
    ReturnStoredResult,
)
from localqueue.policies.routing import (
    POINT_TO_POINT_ROUTING,
    PointToPointRouting,
    PublishSubscribeRouting,
    RoutingPolicy,
)
from localqueue.policies.semantics import (
    LOCAL_AT_LEAST_ONCE,
    QueueSemantics,
)
from localqueue.policies.subscriptions import (
    NO_SUBSCRIPTIONS,
    DynamicFanoutSubscriptions,
    NoSubscriptions,
    StaticFanoutSubscriptions,
    SubscriptionPolicy,
    subscriber_queue_name,
)

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
    "TRANSACTIONAL_OUTBOX_COMMIT",
    "TWO_PHASE_COMMIT",
    "AcknowledgementPolicy",
    "AtLeastOnceDelivery",
    "AtMostOnceDelivery",
    "AwaitableNotification",
    "BackpressurePolicy",
    "BestEffortOrdering",
    "BoundedBackpressure",
    "BytesCodec",
    "CodecPolicy",
    "CommitPolicy",
    "ConsumptionPolicy",
    "CrashLimit",
    "CrashLimitPolicy",
    "DeadLetterPolicy",
    "DeadLetterQueue",
    "DedupeKeySupport",
    "DeduplicationPolicy",
    "DeliveryPolicy",
    "DispatchPolicy",
    "DropNewestBackpressure",
    "DropOldestBackpressure",
    "DynamicFanoutSubscriptions",
    "EffectivelyOnceDelivery",
    "ExpiryPolicy",
    "ExplicitAcknowledgement",
    "FifoReadyOrdering",
    "FixedLeaseTimeout",
    "Journal",
    "JournalPolicy",
    "JsonCodec",
    "LeasePolicy",
    "LeasingDispatchPolicy",
    "LocalAtomicCommit",
    "LocalQueuePlacement",
    "LocalityPolicy",
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
    "PointToPointRouting",
    "PriorityOrdering",
    "PublishSubscribeRouting",
    "PullConsumption",
    "PushConsumption",
    "QueuePolicySet",
    "QueueSemantics",
    "RejectingBackpressure",
    "RemoteQueuePlacement",
    "ResolvedPolicies",
    "ResultPolicy",
    "ReturnStoredResult",
    "RoutingPolicy",
    "SagaCommit",
    "SagaStep",
    "SpecLike",
    "StaticFanoutSubscriptions",
    "SubscriptionPolicy",
    "ThrottlingBackpressure",
    "TransactionalOutboxCommit",
    "TwoPhaseCommit",
    "WaitableNotification",
    "resolve",
    "subscriber_queue_name",
]
