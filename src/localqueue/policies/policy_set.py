"""A bundle of policies that several queues can share."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypedDict, Unpack

from localqueue.policies.acknowledgement import AcknowledgementPolicy
from localqueue.policies.backpressure import BackpressurePolicy
from localqueue.policies.codec import CodecPolicy
from localqueue.policies.commit import LOCAL_ATOMIC_COMMIT, CommitPolicy
from localqueue.policies.consumption import ConsumptionPolicy
from localqueue.policies.crash_limit import CrashLimitPolicy
from localqueue.policies.dead_letters import DeadLetterPolicy
from localqueue.policies.deduplication import DeduplicationPolicy
from localqueue.policies.delivery import (
    AT_LEAST_ONCE_DELIVERY,
    AtMostOnceDelivery,
    DeliveryPolicy,
    EffectivelyOnceDelivery,
)
from localqueue.policies.dispatch import DispatchPolicy
from localqueue.policies.expiry import ExpiryPolicy
from localqueue.policies.journal import JournalPolicy
from localqueue.policies.leases import LeasePolicy
from localqueue.policies.locality import LocalityPolicy
from localqueue.policies.notification import NotificationPolicy
from localqueue.policies.ordering import OrderingPolicy
from localqueue.policies.results import NO_RESULT_POLICY, ResultPolicy
from localqueue.policies.routing import RoutingPolicy
from localqueue.policies.semantics import QueueSemantics
from localqueue.policies.subscriptions import SubscriptionPolicy


class PolicyOptions(TypedDict, total=False):
    """The policies that a factory takes beside the delivery it is named after."""

    semantics: QueueSemantics | None
    locality_policy: LocalityPolicy | None
    lease_policy: LeasePolicy | None
    acknowledgement_policy: AcknowledgementPolicy | None
    dead_letter_policy: DeadLetterPolicy | None
    deduplication_policy: DeduplicationPolicy | None
    consumption_policy: ConsumptionPolicy | None
    dispatch_policy: DispatchPolicy | None
    notification_policy: NotificationPolicy | None
    ordering_policy: OrderingPolicy | None
    routing_policy: RoutingPolicy | None
    subscription_policy: SubscriptionPolicy | None
    backpressure: BackpressurePolicy | None
    expiry_policy: ExpiryPolicy | None
    crash_limit_policy: CrashLimitPolicy | None
    journal_policy: JournalPolicy | None
    codec_policy: CodecPolicy | None


class QueuePolicies(PolicyOptions, total=False):
    """Every policy that a queue takes."""

    delivery_policy: DeliveryPolicy | None


@dataclass(frozen=True, slots=True)
class QueuePolicySet:
    """Policies kept together as one value. What is None is left to the queue's defaults."""

    semantics: QueueSemantics | None = None
    locality_policy: LocalityPolicy | None = None
    lease_policy: LeasePolicy | None = None
    acknowledgement_policy: AcknowledgementPolicy | None = None
    dead_letter_policy: DeadLetterPolicy | None = None
    deduplication_policy: DeduplicationPolicy | None = None
    delivery_policy: DeliveryPolicy | None = None
    consumption_policy: ConsumptionPolicy | None = None
    dispatch_policy: DispatchPolicy | None = None
    notification_policy: NotificationPolicy | None = None
    ordering_policy: OrderingPolicy | None = None
    routing_policy: RoutingPolicy | None = None
    subscription_policy: SubscriptionPolicy | None = None
    backpressure: BackpressurePolicy | None = None
    expiry_policy: ExpiryPolicy | None = None
    crash_limit_policy: CrashLimitPolicy | None = None
    journal_policy: JournalPolicy | None = None
    codec_policy: CodecPolicy | None = None

    @classmethod
    def at_least_once(cls, **policies: Unpack[PolicyOptions]) -> QueuePolicySet:
        """Delivered until acknowledged, perhaps more than once."""
        return cls(delivery_policy=AT_LEAST_ONCE_DELIVERY, **policies)

    @classmethod
    def at_most_once(cls, **policies: Unpack[PolicyOptions]) -> QueuePolicySet:
        """Removed before it is handled, so that a crash loses it rather than repeats it."""
        return cls(delivery_policy=AtMostOnceDelivery(), **policies)

    @classmethod
    def effectively_once(
        cls,
        *,
        idempotency_store: Any = None,
        result_policy: ResultPolicy = NO_RESULT_POLICY,
        commit_policy: CommitPolicy = LOCAL_ATOMIC_COMMIT,
        **policies: Unpack[PolicyOptions],
    ) -> QueuePolicySet:
        """Delivered at least once under a key; ``idempotency_store`` is how repeats are skipped."""
        delivery = EffectivelyOnceDelivery(
            idempotency_store=idempotency_store,
            result_policy=result_policy,
            commit_policy=commit_policy,
        )
        return cls(delivery_policy=delivery, **policies)

    def given(self) -> dict[str, Any]:
        """The policies that are set, by option name."""
        return {option: policy for option, policy in self._members() if policy is not None}

    def as_dict(self) -> dict[str, Any]:
        """Fourteen keys, each None or the policy's own description; later ones only when set."""
        return {
            option: None if policy is None else policy.as_dict()
            for option, policy in self._members()
            if policy is not None or option not in _SHOWN_ONLY_WHEN_SET
        }

    def _members(self) -> list[tuple[str, Any]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


_SHOWN_ONLY_WHEN_SET = frozenset(
    ("expiry_policy", "crash_limit_policy", "journal_policy", "codec_policy")
)
