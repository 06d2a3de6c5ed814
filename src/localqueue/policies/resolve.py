"""From the options of a queue to its policies: defaults, bundles, conflicts.

The rules run in a fixed order, so that of two mistakes always the same one is reported:
name or spec, the store, the policy set, numbers and retries, the semantics.
"""

from __future__ import annotations

from typing import Any, Protocol, Unpack, cast, runtime_checkable

from localqueue.checks import check_count, check_queue_name
from localqueue.errors import ConfigurationError, WrongType
from localqueue.policies.acknowledgement import EXPLICIT_ACKNOWLEDGEMENT
from localqueue.policies.backpressure import BoundedBackpressure
from localqueue.policies.codec import JSON_CODEC
from localqueue.policies.consumption import PULL_CONSUMPTION
from localqueue.policies.crash_limit import CRASH_LIMIT
from localqueue.policies.dead_letters import DEAD_LETTER_QUEUE
from localqueue.policies.deduplication import DEDUPE_KEY_SUPPORT
from localqueue.policies.delivery import AT_LEAST_ONCE_DELIVERY
from localqueue.policies.dispatch import NO_DISPATCHER
from localqueue.policies.expiry import NO_EXPIRY
from localqueue.policies.journal import JOURNAL
from localqueue.policies.leases import (
    DEFAULT_LEASE_TIMEOUT,
    FixedLeaseTimeout,
    check_lease_timeout,
)
from localqueue.policies.locality import LOCAL_QUEUE_PLACEMENT
from localqueue.policies.notification import NO_NOTIFICATION
from localqueue.policies.ordering import FIFO_READY_ORDERING
from localqueue.policies.policy_set import QueuePolicies, QueuePolicySet
from localqueue.policies.resolved import ResolvedPolicies, SpecLike, trait
from localqueue.policies.retry_defaults import check_retry_defaults
from localqueue.policies.routing import POINT_TO_POINT_ROUTING
from localqueue.policies.semantics import QueueSemantics
from localqueue.policies.subscriptions import NO_SUBSCRIPTIONS, subscriber_queue_name
from localqueue.stores.settings import DEFAULT_SETTINGS, ORDERINGS

DEFAULTS: dict[str, Any] = {
    "locality_policy": LOCAL_QUEUE_PLACEMENT,
    "acknowledgement_policy": EXPLICIT_ACKNOWLEDGEMENT,
    "dead_letter_policy": DEAD_LETTER_QUEUE,
    "deduplication_policy": DEDUPE_KEY_SUPPORT,
    "delivery_policy": AT_LEAST_ONCE_DELIVERY,
    "consumption_policy": PULL_CONSUMPTION,
    "dispatch_policy": NO_DISPATCHER,
    "notification_policy": NO_NOTIFICATION,
    "ordering_policy": FIFO_READY_ORDERING,
    "routing_policy": POINT_TO_POINT_ROUTING,
    "subscription_policy": NO_SUBSCRIPTIONS,
    "expiry_policy": NO_EXPIRY,
    "crash_limit_policy": CRASH_LIMIT,
    "journal_policy": JOURNAL,
    "codec_policy": JSON_CODEC,
}

SEMANTICS_AGREE_WITH: tuple[tuple[str, str, str], ...] = (
    ("locality", "locality_policy", "locality"),
    ("leases", "lease_policy", "uses_leases"),
    ("acknowledgements", "acknowledgement_policy", "acknowledgements"),
    ("dead_letters", "dead_letter_policy", "dead_letters"),
    ("deduplication", "deduplication_policy", "deduplication"),
    ("subscriptions", "subscription_policy", "subscriptions"),
    ("notifications", "notification_policy", "notifies_on_put"),
    ("delivery", "delivery_policy", "guarantee"),
    ("consumption", "consumption_policy", "pattern"),
    ("ordering", "ordering_policy", "guarantee"),
    ("routing", "routing_policy", "pattern"),
)
"""Field of the semantics, policy, attribute of the policy, in the order of the checks."""

# What the queue and the rules read of a policy, so that a wrong object is refused when it is given.
_NEEDED: dict[str, tuple[str, ...]] = {
    "semantics": tuple(field for field, _, _ in SEMANTICS_AGREE_WITH),
    "locality_policy": ("locality",),
    "lease_policy": ("timeout", "uses_leases"),
    "acknowledgement_policy": ("acknowledgements",),
    "dead_letter_policy": ("dead_letters",),
    "deduplication_policy": ("deduplication", "accepts_dedupe_key"),
    "delivery_policy": ("guarantee", "ack_timing"),
    "consumption_policy": ("pattern",),
    "dispatch_policy": ("dispatches_on_put", "dispatch"),
    "notification_policy": ("notifies_on_put", "notify"),
    "ordering_policy": ("guarantee",),
    "routing_policy": ("pattern", "fanout"),
    "subscription_policy": ("subscriptions",),
    "backpressure": ("maxsize", "overflow", "is_full"),
    "expiry_policy": ("expires", "settings"),
    "crash_limit_policy": ("limit", "settings"),
    "journal_policy": ("enabled", "payloads", "settings"),
    "codec_policy": ("id", "encode", "decode", "fingerprint"),
}

_STORE_ACTS_ON = frozenset(
    (
        "ordering_policy",
        "routing_policy",
        "backpressure",
        "expiry_policy",
        "crash_limit_policy",
        "journal_policy",
    )
)


def resolve(
    *,
    name: str | None = None,
    spec: SpecLike | None = None,
    store: object = None,
    store_path: object = None,
    lease_timeout: float = DEFAULT_LEASE_TIMEOUT,
    maxsize: int = 0,
    retry_defaults: object = None,
    policy_set: QueuePolicySet | None = None,
    **policies: Unpack[QueuePolicies],
) -> ResolvedPolicies:
    """The policies of a queue with these options. None is the same as not given.

    Touches no store. Raises ConfigurationError for options that exclude each other, InvalidArgument
    for numbers and names that mean nothing, WrongType for objects of another kind.
    """
    queue_name = _name(name, spec)
    if spec is not None:
        policy_set = spec.policy_set if policy_set is None else policy_set
        retry_defaults = spec.retry_kwargs if retry_defaults is None else retry_defaults
    if store is not None and store_path is not None:
        raise ConfigurationError("pass either store= or store_path=, not both")
    given = _given(cast("dict[str, Any]", policies), policy_set, maxsize)
    decided = DEFAULTS | given
    _decide_lease(decided, given, lease_timeout)
    _decide_capacity(decided, given, maxsize)
    retries = check_retry_defaults({} if retry_defaults is None else retry_defaults)
    _decide_semantics(decided)
    if decided["routing_policy"].fanout:
        for subscriber in trait(decided["subscription_policy"], "subscribers", ()):
            subscriber_queue_name(queue_name, subscriber)
    return ResolvedPolicies(
        name=queue_name,
        spec=spec,
        retry_defaults=retries,
        given=given,
        explicit_settings=_explicit_settings(given, maxsize),
        **decided,
    )


def _name(name: str | None, spec: SpecLike | None) -> str:
    if name is None and spec is None:
        raise ConfigurationError("pass either name= or spec=")
    if spec is not None:
        _check_shape("spec", spec, ("name", "policy_set", "retry_kwargs", "build_worker_config"))
        name = spec.name if name is None else name
    return check_queue_name(name)


def _given(
    policies: dict[str, Any], policy_set: QueuePolicySet | None, maxsize: int
) -> dict[str, Any]:
    unknown = sorted(set(policies) - set(_NEEDED))
    if unknown:
        raise WrongType(f"unknown queue options: {', '.join(unknown)}")
    given = {option: policy for option, policy in policies.items() if policy is not None}
    if policy_set is not None:
        if not isinstance(policy_set, QueuePolicySet):
            raise WrongType(f"policy_set must be a QueuePolicySet, not {_kind(policy_set)}")
        if policy_set.backpressure is not None and maxsize != 0:
            raise ConfigurationError("pass either maxsize= or policy_set.backpressure, not both")
        for option, policy in policy_set.given().items():
            if option in given:
                raise ConfigurationError(f"pass either {option}= or policy_set.{option}, not both")
            given[option] = policy
    for option, policy in given.items():
        _check_shape(option, policy, _NEEDED[option])
    return given


def _decide_lease(decided: dict[str, Any], given: dict[str, Any], timeout: float) -> None:
    if "lease_policy" in given:
        if timeout != DEFAULT_LEASE_TIMEOUT:
            raise ConfigurationError("pass either lease_timeout= or lease_policy=, not both")
        timeout = check_lease_timeout("lease_policy.timeout", given["lease_policy"].timeout)
    else:
        timeout = check_lease_timeout("lease_timeout", timeout)
        decided["lease_policy"] = FixedLeaseTimeout(timeout)
    decided["lease_timeout"] = timeout


def _decide_capacity(decided: dict[str, Any], given: dict[str, Any], maxsize: int) -> None:
    if "backpressure" in given:
        if maxsize != 0:
            raise ConfigurationError("pass either maxsize= or backpressure=, not both")
        maxsize = check_count("backpressure.maxsize", given["backpressure"].maxsize)
    else:
        decided["backpressure"] = BoundedBackpressure(check_count("maxsize", maxsize))
    decided["maxsize"] = maxsize


def _decide_semantics(decided: dict[str, Any]) -> None:
    implied = {
        field: getattr(decided[option], attribute)
        for field, option, attribute in SEMANTICS_AGREE_WITH
    }
    claimed = decided.setdefault("semantics", QueueSemantics(**implied))
    for field, option, attribute in SEMANTICS_AGREE_WITH:
        if getattr(claimed, field) != implied[field]:
            raise ConfigurationError(f"semantics {field} must match {option} {attribute}")


@runtime_checkable
class _SetsTheStore(Protocol):
    def settings(self) -> dict[str, object]: ...


def _explicit_settings(given: dict[str, Any], maxsize: int) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if maxsize != 0:
        settings |= BoundedBackpressure(maxsize).settings()
    for option in _STORE_ACTS_ON & given.keys():
        settings |= _settings(option, given[option])
    DEFAULT_SETTINGS.changed(settings)  # refuses a name that no store knows
    return settings


def _settings(option: str, policy: Any) -> dict[str, Any]:
    if isinstance(policy, _SetsTheStore):
        return policy.settings()
    # A user's own object as the reference has it: its documented attributes say the same.
    if option == "ordering_policy":
        if policy.guarantee not in ORDERINGS:
            raise ConfigurationError(
                f"ordering_policy guarantee must be one of {', '.join(ORDERINGS)},"
                f" not {policy.guarantee!r}"
            )
        return {"ordering": policy.guarantee}
    if option == "backpressure":
        return BoundedBackpressure(policy.maxsize, policy.overflow).settings()
    return {"fanout": "copy" if policy.fanout else None}


def _check_shape(option: str, policy: object, needed: tuple[str, ...]) -> None:
    if isinstance(policy, type):
        raise WrongType(f"{option} takes an object, not a class: write {policy.__name__}(...)")
    missing = [name for name in needed if not hasattr(policy, name)]
    if missing:
        raise WrongType(f"{option} cannot be {_kind(policy)}: it has no {', '.join(missing)}")


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"
