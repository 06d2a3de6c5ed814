"""From the options of a queue to its policies: every rule of the constructor."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from localqueue.adapters.notification import CallbackNotification
from localqueue.errors import ConfigurationError, InvalidArgument, LocalQueueError, WrongType
from localqueue.policies import (
    LOCAL_AT_LEAST_ONCE,
    AtLeastOnceDelivery,
    AtMostOnceDelivery,
    BoundedBackpressure,
    BytesCodec,
    CrashLimit,
    DeadLetterQueue,
    DedupeKeySupport,
    DropOldestBackpressure,
    EffectivelyOnceDelivery,
    ExplicitAcknowledgement,
    FifoReadyOrdering,
    FixedLeaseTimeout,
    Journal,
    JsonCodec,
    LocalQueuePlacement,
    MessageTTL,
    NoDeduplication,
    NoDispatcher,
    NoExpiry,
    NoNotification,
    NoSubscriptions,
    PointToPointRouting,
    PriorityOrdering,
    PublishSubscribeRouting,
    PullConsumption,
    PushConsumption,
    QueuePolicySet,
    QueueSemantics,
    RejectingBackpressure,
    RemoteQueuePlacement,
    ResolvedPolicies,
    StaticFanoutSubscriptions,
    resolve,
)

POLICIES: dict[str, Any] = {
    "semantics": QueueSemantics(),
    "locality_policy": LocalQueuePlacement(),
    "lease_policy": FixedLeaseTimeout(5.0),
    "acknowledgement_policy": ExplicitAcknowledgement(),
    "dead_letter_policy": DeadLetterQueue(),
    "deduplication_policy": DedupeKeySupport(),
    "delivery_policy": AtLeastOnceDelivery(),
    "consumption_policy": PullConsumption(),
    "dispatch_policy": NoDispatcher(),
    "notification_policy": NoNotification(),
    "ordering_policy": FifoReadyOrdering(),
    "routing_policy": PointToPointRouting(),
    "subscription_policy": NoSubscriptions(),
    "backpressure": BoundedBackpressure(5),
    "expiry_policy": NoExpiry(),
    "crash_limit_policy": CrashLimit(),
    "journal_policy": Journal(),
    "codec_policy": JsonCodec(),
}
"""One valid value for each option that takes a policy."""


@dataclass
class Spec:
    """An object with a spec's attributes: a queue takes any."""

    name: str = "from-spec"
    policy_set: QueuePolicySet | None = None
    retry_kwargs: dict[str, Any] = field(default_factory=dict)

    def build_worker_config(self, **overrides: Any) -> Any:
        return overrides


def resolved(**options: Any) -> ResolvedPolicies:
    return resolve(**({"name": "jobs"} | options))


def refusal(**options: Any) -> LocalQueueError:
    with pytest.raises(LocalQueueError) as refused:
        resolve(**options)
    return refused.value


# --- defaults -------------------------------------------------------------------------------------
def test_a_queue_with_only_a_name_gets_the_defaults() -> None:
    queue = resolve(name="jobs")

    assert {option: getattr(queue, option) for option in POLICIES} == POLICIES | {
        "lease_policy": FixedLeaseTimeout(30.0),
        "backpressure": BoundedBackpressure(0),
    }
    assert queue.semantics == LOCAL_AT_LEAST_ONCE
    assert (queue.name, queue.spec) == ("jobs", None)
    assert (queue.lease_timeout, queue.maxsize, queue.retry_defaults) == (30.0, 0, {})


def test_defaults_are_never_explicit() -> None:
    queue = resolved(lease_timeout=5.0, retry_defaults={"max_tries": 2})

    assert queue.explicit_settings == {}
    assert queue.given == {}


@pytest.mark.parametrize("option", POLICIES)
def test_none_is_the_same_as_not_given(option: str) -> None:
    queue = resolved(policy_set=QueuePolicySet(**{option: POLICIES[option]}), **{option: None})

    assert getattr(queue, option) is POLICIES[option]


@pytest.mark.parametrize("option", POLICIES)
def test_a_policy_is_kept_whether_it_is_given_directly_in_a_set_or_in_a_spec(option: str) -> None:
    policy = POLICIES[option]
    bundle = QueuePolicySet(**{option: policy})

    ways = (
        resolved(**{option: policy}),
        resolved(policy_set=bundle),
        resolve(spec=Spec(policy_set=bundle)),
    )

    for queue in ways:
        assert getattr(queue, option) is policy
        assert queue.given == {option: policy}


def test_resolving_twice_gives_retry_defaults_of_their_own() -> None:
    given = {"max_tries": 2}
    first, second = resolved(retry_defaults=given), resolved(retry_defaults=given)

    first.retry_defaults["max_tries"] = 9

    assert second.retry_defaults == given == {"max_tries": 2}


# --- 1: name or spec ------------------------------------------------------------------------------
def test_name_or_spec_is_needed() -> None:
    error = refusal()

    assert isinstance(error, ConfigurationError)
    assert str(error) == "pass either name= or spec="


def test_a_name_overrides_that_of_the_spec() -> None:
    assert resolve(name="jobs", spec=Spec()).name == "jobs"
    assert resolve(spec=Spec()).name == "from-spec"


def test_a_policy_set_beside_a_spec_wins_silently() -> None:
    spec = Spec(policy_set=QueuePolicySet.at_most_once())

    queue = resolve(spec=spec, policy_set=QueuePolicySet(ordering_policy=PriorityOrdering()))

    assert queue.delivery_policy == AtLeastOnceDelivery()
    assert queue.spec is spec


def test_retry_defaults_beside_a_spec_win_silently() -> None:
    spec = Spec(retry_kwargs={"max_tries": 2})

    assert resolve(spec=spec).retry_defaults == {"max_tries": 2}
    assert resolve(spec=spec, retry_defaults={}).retry_defaults == {}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", InvalidArgument),
        ("  ", InvalidArgument),
        ("a:b", InvalidArgument),
        ("a\nb", InvalidArgument),
        ("\ud800", InvalidArgument),
        ("x" * 201, InvalidArgument),
        (7, WrongType),
        (b"jobs", WrongType),
    ],
)
def test_a_bad_name_is_refused_when_the_queue_is_built(name: Any, error: type) -> None:
    assert type(refusal(name=name)) is error
    assert type(refusal(spec=Spec(name=name))) is error


@pytest.mark.parametrize("spec", ["jobs", object(), Spec])
def test_what_has_no_attributes_of_a_spec_is_refused(spec: Any) -> None:
    assert "spec" in str(refusal(spec=spec))


# --- 2: the store ---------------------------------------------------------------------------------
def test_store_and_path_exclude_each_other() -> None:
    error = refusal(name="jobs", store=object(), store_path="jobs.sqlite3")

    assert str(error) == "pass either store= or store_path=, not both"
    assert isinstance(error, ConfigurationError)


# --- 3: policy sets -------------------------------------------------------------------------------
@pytest.mark.parametrize("option", POLICIES)
def test_an_option_and_the_same_in_the_set_exclude_each_other(option: str) -> None:
    policy = POLICIES[option]

    error = refusal(name="jobs", policy_set=QueuePolicySet(**{option: policy}), **{option: policy})

    assert str(error) == f"pass either {option}= or policy_set.{option}, not both"
    assert isinstance(error, ConfigurationError)


def test_an_option_and_the_same_in_the_spec_exclude_each_other() -> None:
    spec = Spec(policy_set=QueuePolicySet.at_most_once())

    error = refusal(spec=spec, delivery_policy=AtMostOnceDelivery())

    assert str(error) == "pass either delivery_policy= or policy_set.delivery_policy, not both"


def test_maxsize_and_the_sets_backpressure_exclude_each_other() -> None:
    bundle = QueuePolicySet(backpressure=BoundedBackpressure(5))

    error = refusal(name="jobs", maxsize=5, policy_set=bundle)

    assert str(error) == "pass either maxsize= or policy_set.backpressure, not both"


def test_the_sets_lease_policy_and_a_lease_timeout_exclude_each_other() -> None:
    bundle = QueuePolicySet(lease_policy=FixedLeaseTimeout(5))

    error = refusal(name="jobs", lease_timeout=5.0, policy_set=bundle)

    assert str(error) == "pass either lease_timeout= or lease_policy=, not both"


@pytest.mark.parametrize("bundle", [{}, "at-least-once", QueuePolicySet])
def test_only_a_policy_set_is_a_policy_set(bundle: Any) -> None:
    error = refusal(name="jobs", policy_set=bundle)

    assert isinstance(error, WrongType)
    assert "policy_set must be a QueuePolicySet" in str(error)


# --- 4: numbers and retries -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        (
            {"backpressure": BoundedBackpressure(5), "maxsize": 5},
            ConfigurationError,
            "pass either maxsize= or backpressure=, not both",
        ),
        (
            {"lease_policy": FixedLeaseTimeout(5), "lease_timeout": 5.0},
            ConfigurationError,
            "pass either lease_timeout= or lease_policy=, not both",
        ),
        ({"lease_timeout": 0}, InvalidArgument, "lease_timeout must be greater than zero"),
        ({"lease_timeout": -1}, InvalidArgument, "lease_timeout must be greater than zero"),
        ({"lease_timeout": -math.inf}, InvalidArgument, "lease_timeout must be greater than zero"),
        ({"lease_timeout": math.nan}, InvalidArgument, "lease_timeout must be a finite number"),
        ({"lease_timeout": math.inf}, InvalidArgument, "lease_timeout must be a finite number"),
        (
            {"lease_timeout": "30"},
            WrongType,
            "lease_timeout must be a number of seconds, not str",
        ),
        (
            {"lease_timeout": True},
            WrongType,
            "lease_timeout must be a number of seconds, not bool",
        ),
        (
            {"lease_timeout": None},
            WrongType,
            "lease_timeout must be a number of seconds, not NoneType",
        ),
        ({"maxsize": -1}, InvalidArgument, "maxsize cannot be negative"),
        ({"maxsize": True}, WrongType, "maxsize must be an integer, not bool"),
        ({"maxsize": 1.0}, WrongType, "maxsize must be an integer, not float"),
        ({"maxsize": "5"}, WrongType, "maxsize must be an integer, not str"),
        ({"retry_defaults": [("a", 1)]}, WrongType, "retry_defaults must be a mapping, not list"),
        ({"retry_defaults": {1: 2}}, WrongType, "retry_defaults must have strings as keys"),
        (
            {"retry_defaults": {"max_tries": 2, "stop": object()}},
            ConfigurationError,
            "retry_defaults cannot have both max_tries and stop; max_tries is short for a stop",
        ),
        *(
            (
                {"retry_defaults": {"max_tries": tries}},
                InvalidArgument,
                f"max_tries must be a positive integer, not {tries!r}",
            )
            for tries in (0, -1, 1.5, "3", True)
        ),
    ],
)
def test_a_bad_number_or_retry_option_is_refused(
    options: dict[str, Any], error: type, sentence: str
) -> None:
    refused = refusal(name="jobs", **options)

    assert type(refused) is error
    assert str(refused) == sentence


def test_a_lease_timeout_of_30_is_as_good_as_none() -> None:
    queue = resolved(lease_policy=FixedLeaseTimeout(5), lease_timeout=30)

    assert queue.lease_timeout == 5.0


def test_lease_timeout_is_short_for_a_lease_policy() -> None:
    queue = resolved(lease_timeout=0.5)

    assert queue.lease_timeout == 0.5
    assert queue.lease_policy == FixedLeaseTimeout(0.5)


def test_maxsize_is_short_for_a_bounded_queue_and_is_explicit() -> None:
    queue = resolved(maxsize=7)

    assert queue.maxsize == 7
    assert queue.backpressure == BoundedBackpressure(7)
    assert queue.explicit_settings == BoundedBackpressure(7).settings()


def test_maxsize_shows_that_of_the_backpressure() -> None:
    assert resolved(backpressure=RejectingBackpressure(7)).maxsize == 7


def test_retry_options_without_a_limit_are_kept_as_they_are() -> None:
    options = {"max_tries": None, "stop": "any", "wait": 3}

    assert resolved(retry_defaults=options).retry_defaults == options


# --- 5: semantics ---------------------------------------------------------------------------------
SEMANTICS: list[tuple[str, Any, str]] = [
    ("locality", "remote", "locality_policy locality"),
    ("leases", False, "lease_policy uses_leases"),
    ("acknowledgements", False, "acknowledgement_policy acknowledgements"),
    ("dead_letters", False, "dead_letter_policy dead_letters"),
    ("deduplication", False, "deduplication_policy deduplication"),
    ("subscriptions", True, "subscription_policy subscriptions"),
    ("notifications", True, "notification_policy notifies_on_put"),
    ("delivery", "at-most-once", "delivery_policy guarantee"),
    ("consumption", "push", "consumption_policy pattern"),
    ("ordering", "priority", "ordering_policy guarantee"),
    ("routing", "publish-subscribe", "routing_policy pattern"),
]


@pytest.mark.parametrize(("field_name", "value", "what"), SEMANTICS)
def test_semantics_must_agree_with_the_policies(field_name: str, value: Any, what: str) -> None:
    claimed = replace(QueueSemantics(), **{field_name: value})

    error = refusal(name="jobs", semantics=claimed)

    assert isinstance(error, ConfigurationError)
    assert str(error) == f"semantics {field_name} must match {what}"
    assert str(error) == str(refusal(name="jobs", policy_set=QueuePolicySet(semantics=claimed)))


def test_of_several_disagreements_the_first_of_the_list_is_reported() -> None:
    wrong = {field_name: value for field_name, value, _ in SEMANTICS}
    for field_name, value, what in SEMANTICS:
        error = refusal(name="jobs", semantics=QueueSemantics(**wrong))

        assert str(error) == f"semantics {field_name} must match {what}", value

        del wrong[field_name]


def test_semantics_are_derived_from_the_policies() -> None:
    queue = resolved(
        locality_policy=RemoteQueuePlacement(),
        delivery_policy=AtMostOnceDelivery(),
        routing_policy=PublishSubscribeRouting(),
        consumption_policy=PushConsumption(),
        ordering_policy=PriorityOrdering(),
        deduplication_policy=NoDeduplication(),
        subscription_policy=StaticFanoutSubscriptions(["audit"]),
        notification_policy=CallbackNotification(print),
    )

    assert queue.semantics == QueueSemantics(
        locality="remote",
        delivery="at-most-once",
        routing="publish-subscribe",
        consumption="push",
        ordering="priority",
        leases=True,
        acknowledgements=True,
        dead_letters=True,
        deduplication=False,
        subscriptions=True,
        notifications=True,
    )


def test_semantics_that_agree_are_kept() -> None:
    claimed = QueueSemantics(ordering="priority")

    assert resolved(ordering_policy=PriorityOrdering(), semantics=claimed).semantics is claimed


# --- the order of the rules -----------------------------------------------------------------------
def test_of_several_mistakes_the_earliest_rule_is_reported() -> None:
    bounded = BoundedBackpressure(5)
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"name": ""}, "queue name cannot be empty"),
        ({"store": object(), "store_path": "x"}, "pass either store= or store_path=, not both"),
        (
            {"policy_set": QueuePolicySet(backpressure=bounded), "maxsize": -1},
            "pass either maxsize= or policy_set.backpressure, not both",
        ),
        (
            {
                "policy_set": QueuePolicySet(ordering_policy=PriorityOrdering()),
                "ordering_policy": PriorityOrdering(),
            },
            "pass either ordering_policy= or policy_set.ordering_policy, not both",
        ),
        ({"lease_timeout": 0}, "lease_timeout must be greater than zero"),
        ({"maxsize": -1}, "maxsize cannot be negative"),
        ({"retry_defaults": 5}, "retry_defaults must be a mapping, not int"),
        ({"semantics": QueueSemantics(leases=False)}, "semantics leases must match"),
    ]
    for position, (_, sentence) in enumerate(mistakes):
        together: dict[str, Any] = {"name": "jobs"}
        for options, _ in reversed(mistakes[position:]):
            together |= options

        assert sentence in str(refusal(**together))


# --- explicit settings ----------------------------------------------------------------------------
def test_what_the_given_policies_set_is_collected() -> None:
    queue = resolved(
        ordering_policy=PriorityOrdering(),
        policy_set=QueuePolicySet(
            expiry_policy=MessageTTL(60), journal_policy=Journal(payloads=True)
        ),
        crash_limit_policy=CrashLimit(5),
        routing_policy=PointToPointRouting(),
        backpressure=DropOldestBackpressure(9),
        codec_policy=BytesCodec(),
    )

    assert queue.explicit_settings == {
        "ordering": "priority",
        "ttl": 60.0,
        "on_expiry": "drop",
        "journal": True,
        "journal_payloads": True,
        "journal_max_age": 604_800.0,
        "journal_max_rows": 1_000_000,
        "crash_limit": 5,
        "fanout": None,
        "maxsize": 9,
        "overflow": "drop-oldest",
        "overflow_to": None,
        "throttle_delay": 0.0,
    }


def test_a_policy_that_equals_the_default_is_explicit_all_the_same() -> None:
    assert resolved(ordering_policy=FifoReadyOrdering()).explicit_settings == {
        "ordering": "fifo-ready"
    }
    assert resolve(
        spec=Spec(policy_set=QueuePolicySet(crash_limit_policy=CrashLimit()))
    ).explicit_settings == {"crash_limit": 3}


# --- objects of the user's own --------------------------------------------------------------------
class OwnOrdering:
    guarantee = "priority"


class OwnBackpressure:
    maxsize = 4
    overflow = "reject"

    def is_full(self, *, qsize: int) -> bool:
        return qsize >= 4


class OwnRouting:
    pattern = "publish-subscribe"
    fanout = True


class OwnNotification:
    """As the reference asks for it; its other attributes are its own business."""

    notifies_on_put = True
    settings = "its own"

    def notify(self, message: object) -> None: ...


class OwnDelivery:
    guarantee = "at-least-once"
    ack_timing = "after-success"


def test_policies_of_the_users_own_are_understood_by_their_documented_attributes() -> None:
    queue = resolved(
        ordering_policy=OwnOrdering(),
        backpressure=OwnBackpressure(),
        routing_policy=OwnRouting(),
        notification_policy=OwnNotification(),
        delivery_policy=OwnDelivery(),
    )

    assert queue.explicit_settings == {
        "ordering": "priority",
        "maxsize": 4,
        "overflow": "reject",
        "overflow_to": None,
        "throttle_delay": 0.0,
        "fanout": "copy",
    }
    assert queue.semantics.notifications
    assert not queue.requires_dedupe_key


def test_an_own_policy_that_no_store_can_act_on_is_refused() -> None:
    class Alphabetical(OwnOrdering):
        guarantee = "alphabetical"

    class Exploding(OwnBackpressure):
        overflow = "explode"

    class Misspelt(OwnOrdering):
        def settings(self) -> dict[str, object]:
            return {"odrering": "priority"}

    assert "must be one of fifo-ready" in str(refusal(name="j", ordering_policy=Alphabetical()))
    assert "overflow must be" in str(refusal(name="j", backpressure=Exploding()))
    assert "odrering" in str(refusal(name="j", ordering_policy=Misspelt()))


@pytest.mark.parametrize("option", POLICIES)
def test_an_object_of_another_kind_is_refused_by_the_name_of_the_option(option: str) -> None:
    for wrong in (object(), "fifo", 5, True):
        error = refusal(name="jobs", **{option: wrong})

        assert isinstance(error, WrongType)
        assert str(error).startswith(f"{option} cannot be a {type(wrong).__name__}: it has no ")


@pytest.mark.parametrize("option", POLICIES)
def test_a_class_instead_of_an_object_is_refused_with_the_remedy(option: str) -> None:
    policy_class = type(POLICIES[option])

    error = refusal(name="jobs", **{option: policy_class})

    assert isinstance(error, WrongType)
    assert f"write {policy_class.__name__}(...)" in str(error)


def test_an_unknown_option_is_refused() -> None:
    error = refusal(name="jobs", colour="blue")

    assert isinstance(error, WrongType)
    assert str(error) == "unknown queue options: colour"


# --- what the queue asks --------------------------------------------------------------------------
def test_questions_that_several_policies_answer() -> None:
    plain = resolved()
    special = resolved(
        delivery_policy=EffectivelyOnceDelivery(),
        deduplication_policy=DedupeKeySupport(window=5, on_conflict="error"),
        routing_policy=PublishSubscribeRouting(),
        subscription_policy=StaticFanoutSubscriptions(["a", "b"]),
    )

    assert (plain.requires_dedupe_key, special.requires_dedupe_key) == (False, True)
    assert (plain.dedupe_window, special.dedupe_window) == (0.0, 5.0)
    assert (plain.conflict_is_error, special.conflict_is_error) == (False, True)
    assert (plain.subscribers, special.subscribers) == ((), ("a", "b"))
    assert not plain.removes_before_delivery
    assert resolved(delivery_policy=AtMostOnceDelivery()).removes_before_delivery


def test_a_subscribers_queue_name_must_be_possible() -> None:
    topic = {
        "routing_policy": PublishSubscribeRouting(),
        "subscription_policy": StaticFanoutSubscriptions(["audit"]),
    }

    assert "longer than 200" in str(refusal(name="e" * 198, **topic))


def test_a_subscribers_queue_makes_the_same_promises_as_an_ordinary_queue() -> None:
    ordering, delivery = PriorityOrdering(), AtMostOnceDelivery()
    topic = resolved(
        ordering_policy=ordering,
        routing_policy=PublishSubscribeRouting("hybrid"),
        subscription_policy=StaticFanoutSubscriptions(["audit"]),
        semantics=QueueSemantics(
            routing="publish-subscribe",
            subscriptions=True,
            ordering="priority",
            delivery="at-most-once",
        ),
        policy_set=QueuePolicySet(delivery_policy=delivery),
        lease_timeout=5.0,
        maxsize=7,
        retry_defaults={"max_tries": 2},
    )

    queue = resolve(name="jobs.audit", **topic.subscriber_options())

    assert queue.ordering_policy is ordering
    assert queue.delivery_policy is delivery
    assert queue.semantics == QueueSemantics(ordering="priority", delivery="at-most-once")
    assert (queue.lease_timeout, queue.maxsize) == (5.0, 7)
    assert queue.retry_defaults == {"max_tries": 2}
    assert queue.explicit_settings == {
        "ordering": "priority",
        **BoundedBackpressure(7).settings(),
    }


def test_a_subscribers_queue_of_a_plain_topic_sets_nothing() -> None:
    backpressure, leases = RejectingBackpressure(3), FixedLeaseTimeout(9)

    assert resolved(routing_policy=PublishSubscribeRouting()).subscriber_options() == {}
    assert resolved(backpressure=backpressure, lease_policy=leases).subscriber_options() == {
        "backpressure": backpressure,
        "lease_policy": leases,
    }
