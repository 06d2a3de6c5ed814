"""Every policy of one queue, decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from localqueue.policies.acknowledgement import AcknowledgementPolicy
from localqueue.policies.backpressure import BackpressurePolicy
from localqueue.policies.codec import CodecPolicy
from localqueue.policies.consumption import ConsumptionPolicy
from localqueue.policies.crash_limit import CrashLimitPolicy
from localqueue.policies.dead_letters import DeadLetterPolicy
from localqueue.policies.deduplication import DeduplicationPolicy
from localqueue.policies.delivery import DeliveryPolicy
from localqueue.policies.dispatch import DispatchPolicy
from localqueue.policies.expiry import ExpiryPolicy
from localqueue.policies.journal import JournalPolicy
from localqueue.policies.leases import DEFAULT_LEASE_TIMEOUT, LeasePolicy
from localqueue.policies.locality import LocalityPolicy
from localqueue.policies.notification import NotificationPolicy
from localqueue.policies.ordering import OrderingPolicy
from localqueue.policies.policy_set import QueuePolicySet
from localqueue.policies.routing import RoutingPolicy
from localqueue.policies.semantics import QueueSemantics
from localqueue.policies.subscriptions import SubscriptionPolicy


class SpecLike(Protocol):
    """What a queue needs from a spec, so that it takes any object that describes one."""

    @property
    def name(self) -> str: ...

    @property
    def policy_set(self) -> QueuePolicySet | None: ...

    @property
    def retry_kwargs(self) -> Mapping[str, Any]: ...

    def build_worker_config(self, **overrides: Any) -> Any: ...


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedPolicies:
    """What ``resolve`` made of a queue's options: nothing is None any more but ``spec``."""

    name: str
    spec: SpecLike | None
    semantics: QueueSemantics
    locality_policy: LocalityPolicy
    lease_policy: LeasePolicy
    acknowledgement_policy: AcknowledgementPolicy
    dead_letter_policy: DeadLetterPolicy
    deduplication_policy: DeduplicationPolicy
    delivery_policy: DeliveryPolicy
    consumption_policy: ConsumptionPolicy
    dispatch_policy: DispatchPolicy
    notification_policy: NotificationPolicy
    ordering_policy: OrderingPolicy
    routing_policy: RoutingPolicy
    subscription_policy: SubscriptionPolicy
    backpressure: BackpressurePolicy
    expiry_policy: ExpiryPolicy
    crash_limit_policy: CrashLimitPolicy
    journal_policy: JournalPolicy
    codec_policy: CodecPolicy
    lease_timeout: float
    maxsize: int
    retry_defaults: dict[str, Any]
    """A fresh dict: the queue hands it to its user, who may change it."""
    given: Mapping[str, Any]
    """The policies that the user gave, by option name: directly, in a set or in a spec."""
    explicit_settings: dict[str, Any]
    """What the given policies ask the store to act on; defaults are never in here."""

    @property
    def requires_dedupe_key(self) -> bool:
        return bool(trait(self.delivery_policy, "requires_dedupe_key", False))

    @property
    def dedupe_window(self) -> float:
        return float(trait(self.deduplication_policy, "window", 0.0))

    @property
    def conflict_is_error(self) -> bool:
        return bool(trait(self.deduplication_policy, "on_conflict", "existing") == "error")

    @property
    def subscribers(self) -> tuple[str, ...]:
        """The fixed subscribers; those of a dynamic policy are in the store."""
        return tuple(trait(self.subscription_policy, "subscribers", ()))

    @property
    def dynamic_subscriptions(self) -> bool:
        return bool(trait(self.subscription_policy, "dynamic", False))

    @property
    def removes_before_delivery(self) -> bool:
        return self.delivery_policy.ack_timing == "before-delivery"

    def subscriber_options(self) -> dict[str, Any]:
        """Options for a subscriber's queue: the same promises, but an ordinary queue.

        Only what the user gave is passed on, so that defaults stay defaults there too.
        """
        options = {
            option: policy for option, policy in self.given.items() if option not in _TOPICS_ONLY
        }
        if "lease_policy" not in options and self.lease_timeout != DEFAULT_LEASE_TIMEOUT:
            options["lease_timeout"] = self.lease_timeout
        if "backpressure" not in options and self.maxsize:
            options["maxsize"] = self.maxsize
        if self.retry_defaults:
            options["retry_defaults"] = dict(self.retry_defaults)
        return options


_TOPICS_ONLY = frozenset(("semantics", "routing_policy", "subscription_policy"))


def trait(policy: object, name: str, default: Any) -> Any:
    """An attribute that a user's own policy object may lack: the reference did not ask for it."""
    return getattr(policy, name, default)
