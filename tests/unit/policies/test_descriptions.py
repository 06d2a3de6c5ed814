"""Every policy describes itself, and the description is a promise about its keys and values."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import pickle
from typing import Any

import pytest

import localqueue.adapters.dispatch as dispatchers
import localqueue.adapters.notification as notifications
import localqueue.policies as policies
from localqueue.adapters.dispatch import (
    CallbackDispatcher,
    ThreadedDispatcher,
    WorkerPoolDispatcher,
)
from localqueue.adapters.notification import (
    AsyncioNotification,
    AsyncNotification,
    CallbackNotification,
    InProcessNotification,
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
    AtLeastOnceDelivery,
    AtMostOnceDelivery,
    BestEffortOrdering,
    BoundedBackpressure,
    BytesCodec,
    CrashLimit,
    DeadLetterQueue,
    DedupeKeySupport,
    DropNewestBackpressure,
    DropOldestBackpressure,
    DynamicFanoutSubscriptions,
    EffectivelyOnceDelivery,
    ExplicitAcknowledgement,
    FifoReadyOrdering,
    FixedLeaseTimeout,
    Journal,
    JsonCodec,
    LocalAtomicCommit,
    LocalQueuePlacement,
    MessageTTL,
    NoDeduplication,
    NoDispatcher,
    NoExpiry,
    NoNotification,
    NoResultPolicy,
    NoSubscriptions,
    OrderingKeys,
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
    ReturnStoredResult,
    SagaCommit,
    SagaStep,
    StaticFanoutSubscriptions,
    ThrottlingBackpressure,
    TransactionalOutboxCommit,
    TwoPhaseCommit,
)


class Ledger:
    """Stands for any store that a user attaches; descriptions name its class."""


def handler(message: object) -> None: ...


LEDGER = Ledger()


class Bank:
    def prepare(self, transaction: str, message: Any, result: Any) -> None: ...

    def commit(self, transaction: str) -> None: ...

    def abort(self, transaction: str) -> None: ...

    def in_doubt(self) -> list[str]:
        return []


BANK, SHOP = Bank(), Bank()
IN_PROCESS = {"scope": "in-process", "notifies": True, "notifies_on_put": True}
LOCAL_COMMIT = {"mode": "local-atomic", "local_commit": True, "coordinates_effects": False}
NO_RESULT = {"type": "none", "stores_result": False, "returns_cached_result": False}

DESCRIPTIONS: list[tuple[Any, dict[str, Any]]] = [
    (
        QueueSemantics(),
        {
            "locality": "local",
            "delivery": "at-least-once",
            "routing": "point-to-point",
            "consumption": "pull",
            "ordering": "fifo-ready",
            "leases": True,
            "acknowledgements": True,
            "dead_letters": True,
            "deduplication": True,
            "subscriptions": False,
            "notifications": False,
        },
    ),
    (
        LocalQueuePlacement(),
        {"locality": "local", "co_located_state": True, "crosses_network_boundary": False},
    ),
    (
        RemoteQueuePlacement(),
        {"locality": "remote", "co_located_state": False, "crosses_network_boundary": True},
    ),
    (
        FixedLeaseTimeout(),
        {"type": "fixed-timeout", "timeout": 30.0, "uses_leases": True, "expires_inflight": True},
    ),
    (
        FixedLeaseTimeout(timeout=2.5),
        {"type": "fixed-timeout", "timeout": 2.5, "uses_leases": True, "expires_inflight": True},
    ),
    (
        ExplicitAcknowledgement(),
        {"acknowledgements": True, "explicit_ack": True, "removes_on_ack": True},
    ),
    (DeadLetterQueue(), {"dead_letters": True, "stores_failures": True, "supports_requeue": True}),
    (DedupeKeySupport(), {"deduplication": True, "accepts_dedupe_key": True}),
    (
        DedupeKeySupport(window=60.0, on_conflict="error"),
        {
            "deduplication": True,
            "accepts_dedupe_key": True,
            "window": 60.0,
            "on_conflict": "error",
        },
    ),
    (NoDeduplication(), {"deduplication": False, "accepts_dedupe_key": False}),
    (
        AtLeastOnceDelivery(),
        {
            "guarantee": "at-least-once",
            "ack_timing": "after-success",
            "uses_leases": True,
            "redelivers_expired_leases": True,
        },
    ),
    (
        AtMostOnceDelivery(),
        {
            "guarantee": "at-most-once",
            "ack_timing": "before-delivery",
            "uses_leases": False,
            "redelivers_expired_leases": False,
        },
    ),
    (
        EffectivelyOnceDelivery(),
        {
            "guarantee": "effectively-once",
            "ack_timing": "after-success",
            "uses_leases": True,
            "redelivers_expired_leases": True,
            "requires_dedupe_key": True,
            "idempotency_store": None,
            "result_policy": NO_RESULT,
            "commit_policy": LOCAL_COMMIT,
        },
    ),
    (
        EffectivelyOnceDelivery(LEDGER, ReturnStoredResult(LEDGER), SagaCommit(LEDGER)),
        {
            "guarantee": "effectively-once",
            "ack_timing": "after-success",
            "uses_leases": True,
            "redelivers_expired_leases": True,
            "requires_dedupe_key": True,
            "idempotency_store": "Ledger",
            "result_policy": {
                "type": "return-stored",
                "stores_result": True,
                "returns_cached_result": True,
                "result_store": "Ledger",
            },
            "commit_policy": {
                "mode": "saga",
                "local_commit": False,
                "coordinates_effects": True,
                "saga_store": "Ledger",
            },
        },
    ),
    (NoResultPolicy(), NO_RESULT),
    (
        ReturnStoredResult(),
        {
            "type": "return-stored",
            "stores_result": True,
            "returns_cached_result": True,
            "result_store": None,
        },
    ),
    (LocalAtomicCommit(), LOCAL_COMMIT),
    (
        TransactionalOutboxCommit(),
        {
            "mode": "transactional-outbox",
            "local_commit": True,
            "coordinates_effects": True,
            "outbox_store": None,
        },
    ),
    (
        TransactionalOutboxCommit(LEDGER, relay=handler),
        {
            "mode": "transactional-outbox",
            "local_commit": True,
            "coordinates_effects": True,
            "outbox_store": "Ledger",
            "relay": True,
        },
    ),
    (
        TwoPhaseCommit(),
        {
            "mode": "two-phase",
            "local_commit": False,
            "coordinates_effects": True,
            "prepare_store": None,
            "commit_store": None,
        },
    ),
    (
        TwoPhaseCommit(prepare_store=LEDGER, commit_store=LEDGER, participants=[BANK, SHOP]),
        {
            "mode": "two-phase",
            "local_commit": False,
            "coordinates_effects": True,
            "prepare_store": "Ledger",
            "commit_store": "Ledger",
            "participant_count": 2,
        },
    ),
    (
        SagaCommit(steps=[SagaStep("reserve", print)]),
        {
            "mode": "saga",
            "local_commit": False,
            "coordinates_effects": True,
            "saga_store": None,
            "step_count": 1,
        },
    ),
    (
        PullConsumption(),
        {
            "pattern": "pull",
            "consumer_requests_messages": True,
            "producer_invokes_handler": False,
        },
    ),
    (
        PushConsumption(),
        {
            "pattern": "push",
            "consumer_requests_messages": False,
            "producer_invokes_handler": True,
        },
    ),
    (NoDispatcher(), {"dispatches": False, "dispatches_on_put": False, "handler_count": 0}),
    (
        CallbackDispatcher([handler, handler]),
        {"type": "callback", "dispatches": True, "dispatches_on_put": True, "handler_count": 2},
    ),
    (
        ThreadedDispatcher([handler]),
        {"type": "threaded", "dispatches": True, "dispatches_on_put": True, "handler_count": 1},
    ),
    (
        WorkerPoolDispatcher([handler], workers=2),
        {
            "type": "worker-pool",
            "dispatches": True,
            "dispatches_on_put": True,
            "handler_count": 1,
            "workers": 2,
        },
    ),
    (NoNotification(), {"notifies": False, "notifies_on_put": False, "listener_count": 0}),
    (
        CallbackNotification([handler, handler]),
        {"type": "callback", **IN_PROCESS, "listener_count": 2},
    ),
    (InProcessNotification(), {"type": "thread-event", **IN_PROCESS, "listener_count": 1}),
    (AsyncNotification(), {"type": "asyncio-event", **IN_PROCESS, "listener_count": 1}),
    (
        PointToPointRouting(),
        {"pattern": "point-to-point", "single_consumer_per_message": True, "fanout": False},
    ),
    (
        PublishSubscribeRouting(),
        {"pattern": "publish-subscribe", "single_consumer_per_message": False, "fanout": True},
    ),
    (
        PublishSubscribeRouting(fanout_mode="hybrid"),
        {
            "pattern": "publish-subscribe",
            "single_consumer_per_message": False,
            "fanout": True,
            "fanout_mode": "hybrid",
        },
    ),
    (NoSubscriptions(), {"subscriptions": False, "fanout": False, "subscriber_count": 0}),
    (
        StaticFanoutSubscriptions(["billing", "audit"]),
        {
            "subscriptions": True,
            "fanout": True,
            "subscriber_count": 2,
            "subscribers": ["billing", "audit"],
        },
    ),
    (
        DynamicFanoutSubscriptions(),
        {"subscriptions": True, "fanout": True, "subscriber_count": None, "dynamic": True},
    ),
    (
        FifoReadyOrdering(),
        {
            "guarantee": "fifo-ready",
            "ready_before_delayed": True,
            "stable_for_same_timestamp": True,
            "priority_before_sequence": False,
        },
    ),
    (
        PriorityOrdering(),
        {
            "guarantee": "priority",
            "ready_before_delayed": True,
            "stable_for_same_timestamp": True,
            "priority_before_sequence": True,
        },
    ),
    (
        BestEffortOrdering(),
        {
            "guarantee": "best-effort",
            "ready_before_delayed": False,
            "stable_for_same_timestamp": False,
            "priority_before_sequence": False,
        },
    ),
    (
        OrderingKeys(),
        {
            "guarantee": "per-key",
            "ready_before_delayed": True,
            "stable_for_same_timestamp": True,
            "priority_before_sequence": False,
        },
    ),
    (
        BoundedBackpressure(),
        {"type": "bounded", "maxsize": 0, "overflow": "block", "loses": "nothing"},
    ),
    (
        BoundedBackpressure(5, "reject"),
        {"type": "bounded", "maxsize": 5, "overflow": "reject", "loses": "nothing"},
    ),
    (
        RejectingBackpressure(maxsize=5),
        {"type": "rejecting", "maxsize": 5, "overflow": "reject", "loses": "nothing"},
    ),
    (
        DropNewestBackpressure(5),
        {
            "type": "drop-newest",
            "maxsize": 5,
            "overflow": "drop-newest",
            "loses": "the message that is being put",
        },
    ),
    (
        DropOldestBackpressure(5),
        {
            "type": "drop-oldest",
            "maxsize": 5,
            "overflow": "drop-oldest",
            "loses": "the oldest ready message, although its put was accepted",
        },
    ),
    (
        ThrottlingBackpressure(5),
        {
            "type": "throttling",
            "maxsize": 5,
            "overflow": "throttle",
            "loses": "nothing",
            "max_delay": 1.0,
        },
    ),
    (
        OverflowBackpressure(5),
        {
            "type": "overflow",
            "maxsize": 5,
            "overflow": "overflow",
            "loses": "nothing; what does not fit waits in the dead letters instead",
            "to": "dead letters",
        },
    ),
    (
        OverflowBackpressure(5, to="spill"),
        {
            "type": "overflow",
            "maxsize": 5,
            "overflow": "overflow",
            "loses": "nothing; what does not fit waits in queue 'spill' instead",
            "to": "spill",
        },
    ),
    (NoExpiry(), {"type": "none", "expires": False}),
    (
        MessageTTL(60),
        {"type": "message-ttl", "expires": True, "seconds": 60, "on_expiry": "drop"},
    ),
    (
        MessageTTL(60, on_expiry="dead-letter"),
        {"type": "message-ttl", "expires": True, "seconds": 60, "on_expiry": "dead-letter"},
    ),
    (CrashLimit(), {"type": "crash-limit", "limit": 3}),
    (
        Journal(),
        {"enabled": True, "payloads": False, "max_age": 604_800.0, "max_rows": 1_000_000},
    ),
    (
        JsonCodec(max_bytes=10, max_depth=2),
        {"type": "json", "max_bytes": 10, "max_depth": 2},
    ),
    (BytesCodec(max_bytes=10), {"type": "bytes", "max_bytes": 10}),
]

READY_MADE: list[tuple[Any, Any]] = [
    (LOCAL_AT_LEAST_ONCE, QueueSemantics()),
    (LOCAL_QUEUE_PLACEMENT, LocalQueuePlacement()),
    (FIXED_LEASE_TIMEOUT, FixedLeaseTimeout(30.0)),
    (EXPLICIT_ACKNOWLEDGEMENT, ExplicitAcknowledgement()),
    (DEAD_LETTER_QUEUE, DeadLetterQueue()),
    (DEDUPE_KEY_SUPPORT, DedupeKeySupport()),
    (NO_DEDUPLICATION, NoDeduplication()),
    (AT_LEAST_ONCE_DELIVERY, AtLeastOnceDelivery()),
    (PULL_CONSUMPTION, PullConsumption()),
    (NO_DISPATCHER, NoDispatcher()),
    (NO_NOTIFICATION, NoNotification()),
    (POINT_TO_POINT_ROUTING, PointToPointRouting()),
    (NO_SUBSCRIPTIONS, NoSubscriptions()),
    (FIFO_READY_ORDERING, FifoReadyOrdering()),
    (NO_RESULT_POLICY, NoResultPolicy()),
    (RETURN_STORED_RESULT, ReturnStoredResult()),
    (LOCAL_ATOMIC_COMMIT, LocalAtomicCommit()),
    (TWO_PHASE_COMMIT, TwoPhaseCommit()),
    (TRANSACTIONAL_OUTBOX_COMMIT, TransactionalOutboxCommit()),
    (NO_EXPIRY, NoExpiry()),
    (CRASH_LIMIT, CrashLimit()),
    (JOURNAL, Journal()),
    (JSON_CODEC, JsonCodec()),
    (BYTES_CODEC, BytesCodec()),
]


def name_of(value: Any) -> str:
    return type(value).__name__ if dataclasses.is_dataclass(value) else ""


def public_policy_classes() -> set[type]:
    """The concrete classes that users can pass to a queue."""
    found = {
        value
        for module in (policies, notifications, dispatchers)
        for name in module.__all__
        if inspect.isclass(value := getattr(module, name))
        and hasattr(value, "as_dict")
        and not getattr(value, "_is_protocol", False)
    }
    return found - {QueuePolicySet}


@pytest.mark.parametrize(("policy", "description"), DESCRIPTIONS, ids=name_of)
def test_a_policy_describes_itself_with_these_keys_in_this_order(
    policy: Any, description: dict[str, Any]
) -> None:
    assert list(policy.as_dict().items()) == list(description.items())


def test_every_public_policy_has_a_description_in_the_table() -> None:
    assert {type(policy) for policy, _ in DESCRIPTIONS} == public_policy_classes()


@pytest.mark.parametrize(("policy", "description"), DESCRIPTIONS, ids=name_of)
def test_a_description_is_plain_data_of_the_callers_own(
    policy: Any, description: dict[str, Any]
) -> None:
    json.dumps(policy.as_dict())

    policy.as_dict().clear()

    assert policy.as_dict() == description


@pytest.mark.parametrize("policy", [policy for policy, _ in DESCRIPTIONS], ids=name_of)
def test_a_policy_cannot_be_changed(policy: Any) -> None:
    fields = [field.name for field in dataclasses.fields(policy)]

    for name in (*fields, "guarantee"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(policy, name, "something else")

    assert not hasattr(policy, "__dict__")


ADAPTERS = (
    CallbackDispatcher,
    ThreadedDispatcher,
    CallbackNotification,
    InProcessNotification,
    AsyncNotification,
)
VALUES = [policy for policy, _ in DESCRIPTIONS if not isinstance(policy, ADAPTERS)]


@pytest.mark.parametrize("policy", VALUES, ids=name_of)
def test_policies_are_equal_by_value(policy: Any) -> None:
    twin = copy.copy(policy)

    assert twin == policy
    assert twin is not policy or not dataclasses.fields(policy)
    assert [other for other in VALUES if other == policy] == [policy]


@pytest.mark.parametrize(
    "policy", [policy for policy in VALUES if "Ledger" not in str(policy.as_dict())], ids=name_of
)
def test_policies_can_be_sent_to_another_process(policy: Any) -> None:
    if getattr(policy, "relay", None) is None:
        assert pickle.loads(pickle.dumps(policy)) == policy


def test_adapters_are_equal_when_they_call_the_same_functions() -> None:
    assert CallbackDispatcher([handler]) == CallbackDispatcher((handler,))
    assert CallbackDispatcher([handler]) != CallbackDispatcher([handler, handler])
    assert CallbackNotification(handler) == CallbackNotification([handler])
    assert InProcessNotification() != InProcessNotification()
    assert AsyncioNotification is AsyncNotification


@pytest.mark.parametrize(("instance", "twin"), READY_MADE, ids=name_of)
def test_a_ready_made_instance_equals_a_plain_one(instance: Any, twin: Any) -> None:
    assert instance == twin


def test_every_ready_made_instance_is_in_the_table() -> None:
    instances = {name for name in policies.__all__ if name.isupper()}

    assert len(READY_MADE) == len(instances)
    assert all(getattr(policies, name) in [made for made, _ in READY_MADE] for name in instances)


def test_policies_that_do_nothing_do_nothing_when_called() -> None:
    message: Any = object()

    NO_DISPATCHER.dispatch(message)
    NO_NOTIFICATION.notify(message)


@pytest.mark.parametrize(
    "policy",
    [
        BoundedBackpressure(2),
        RejectingBackpressure(2),
        DropNewestBackpressure(2),
        DropOldestBackpressure(2),
        ThrottlingBackpressure(2),
        OverflowBackpressure(2),
    ],
    ids=name_of,
)
def test_a_queue_is_full_when_maxsize_messages_wait(policy: Any) -> None:
    assert [policy.is_full(qsize=n) for n in (0, 1, 2, 3)] == [False, False, True, True]


@pytest.mark.parametrize("policy", [BoundedBackpressure(), RejectingBackpressure()], ids=name_of)
def test_a_queue_without_maxsize_is_never_full(policy: Any) -> None:
    assert not policy.is_full(qsize=10**9)
