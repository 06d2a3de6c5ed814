"""What a policy refuses where it is made, and with which error and sentence."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from localqueue.errors import ConfigurationError, InvalidArgument, LocalQueueError, WrongType
from localqueue.policies import (
    BoundedBackpressure,
    CrashLimit,
    DedupeKeySupport,
    DropNewestBackpressure,
    DropOldestBackpressure,
    FixedLeaseTimeout,
    Journal,
    MessageTTL,
    OverflowBackpressure,
    PublishSubscribeRouting,
    RejectingBackpressure,
    SagaCommit,
    StaticFanoutSubscriptions,
    ThrottlingBackpressure,
    TransactionalOutboxCommit,
    TwoPhaseCommit,
    subscriber_queue_name,
)

Made = Callable[[Any], object]
Refusal = tuple[Made, Any, type[LocalQueueError], str]

NOT_COUNTS: list[tuple[Any, type[LocalQueueError], str]] = [
    (True, WrongType, "must be an integer, not bool"),
    (1.5, WrongType, "must be an integer, not float"),
    ("5", WrongType, "must be an integer, not str"),
    (None, WrongType, "must be an integer, not NoneType"),
]
NOT_SECONDS: list[tuple[Any, type[LocalQueueError], str]] = [
    (True, WrongType, "must be a number of seconds, not bool"),
    ("5", WrongType, "must be a number of seconds, not str"),
    (None, WrongType, "must be a number of seconds, not NoneType"),
    (math.nan, InvalidArgument, "must be a finite number"),
    (math.inf, InvalidArgument, "must be a finite number"),
    (1e12, InvalidArgument, "cannot be longer than ten years"),
]
COUNTS: list[tuple[Made, int, str]] = [
    (lambda n: BoundedBackpressure(maxsize=n), 0, "maxsize cannot be negative"),
    (lambda n: RejectingBackpressure(maxsize=n), 0, "maxsize cannot be negative"),
    (lambda n: DropNewestBackpressure(maxsize=n), 1, "maxsize must be at least 1"),
    (lambda n: DropOldestBackpressure(maxsize=n), 1, "maxsize must be at least 1"),
    (lambda n: ThrottlingBackpressure(maxsize=n), 1, "maxsize must be at least 1"),
    (lambda n: OverflowBackpressure(maxsize=n), 1, "maxsize must be at least 1"),
    (lambda n: CrashLimit(limit=n), 1, "limit must be at least 1"),
    (lambda n: Journal(max_rows=n), 1, "max_rows must be at least 1"),
]
SECONDS: list[tuple[Made, bool, str]] = [
    (lambda s: FixedLeaseTimeout(timeout=s), False, "lease timeout"),
    (lambda s: DedupeKeySupport(window=s), True, "window"),
    (lambda s: ThrottlingBackpressure(1, max_delay=s), False, "max_delay"),
    (lambda s: MessageTTL(s), False, "seconds"),
    (lambda s: Journal(max_age=s), False, "max_age"),
]
REFUSALS: list[Refusal] = [
    *((made, value, error, text) for made, _, _ in COUNTS for value, error, text in NOT_COUNTS),
    *((made, least - 1, InvalidArgument, text) for made, least, text in COUNTS),
    *(
        (made, value, error, f"{what} {text}")
        for made, _, what in SECONDS
        for value, error, text in NOT_SECONDS
    ),
    *(
        (made, 0, InvalidArgument, f"{what} must be greater than zero")
        for made, zero, what in SECONDS
        if not zero
    ),
    (
        lambda s: FixedLeaseTimeout(s),
        -1,
        InvalidArgument,
        "lease timeout must be greater than zero",
    ),
    (lambda s: DedupeKeySupport(s), -1, InvalidArgument, "window cannot be negative"),
    (lambda s: MessageTTL(s), -1, InvalidArgument, "seconds cannot be negative"),
    (
        lambda c: DedupeKeySupport(on_conflict=c),
        "replace",
        InvalidArgument,
        "on_conflict must be 'existing' or 'error', not 'replace'",
    ),
    (
        lambda e: MessageTTL(1, on_expiry=e),
        "explode",
        InvalidArgument,
        "on_expiry must be 'drop' or 'dead-letter', not 'explode'",
    ),
    (
        lambda o: BoundedBackpressure(1, overflow=o),
        "drop-newest",
        InvalidArgument,
        "overflow must be 'block' or 'reject', not 'drop-newest'",
    ),
    (
        lambda o: RejectingBackpressure(1, overflow=o),
        "block",
        InvalidArgument,
        "overflow must be 'reject', not 'block'",
    ),
    (
        lambda m: PublishSubscribeRouting(m),
        "telepathy",
        InvalidArgument,
        "fanout_mode must be one of copy, cursor, hybrid, not 'telepathy'",
    ),
    (lambda to: OverflowBackpressure(1, to=to), "", InvalidArgument, "queue name cannot be empty"),
    (lambda to: OverflowBackpressure(1, to=to), "a:b", InvalidArgument, "cannot contain ':'"),
    (lambda to: OverflowBackpressure(1, to=to), 7, WrongType, "queue name must be a string"),
    (lambda e: Journal(enabled=e), 1, WrongType, "enabled must be True or False"),
    (lambda p: Journal(payloads=p), "yes", WrongType, "payloads must be True or False"),
    (
        lambda p: Journal(enabled=False, payloads=p),
        True,
        ConfigurationError,
        "a journal that is off cannot keep payloads",
    ),
    (StaticFanoutSubscriptions, [], InvalidArgument, "subscribers cannot be empty"),
    (StaticFanoutSubscriptions, ["a", " "], InvalidArgument, "subscriber name cannot be empty"),
    (StaticFanoutSubscriptions, ["a", "b", "a"], InvalidArgument, "'a' is there twice"),
    (StaticFanoutSubscriptions, ["a.b"], InvalidArgument, "subscriber name cannot contain '.'"),
    (StaticFanoutSubscriptions, ["a:b"], InvalidArgument, "subscriber name cannot contain ':'"),
    (StaticFanoutSubscriptions, [3], WrongType, "subscriber name must be a string"),
    (StaticFanoutSubscriptions, "billing", WrongType, "must be an iterable of names"),
    (StaticFanoutSubscriptions, None, WrongType, "must be an iterable of names"),
    (lambda r: TransactionalOutboxCommit(relay=r), "send", WrongType, "relay must be callable"),
    (lambda p: TwoPhaseCommit(participants=p), 3, WrongType, "participants must be an iterable"),
    (lambda s: SagaCommit(steps=s), 3, WrongType, "steps must be an iterable"),
    (lambda s: subscriber_queue_name("events", s), "", InvalidArgument, "name cannot be empty"),
    (lambda q: subscriber_queue_name(q, "audit"), "", InvalidArgument, "name cannot be empty"),
    (
        lambda q: subscriber_queue_name(q, "audit"),
        "e" * 198,
        InvalidArgument,
        "queue name is longer than 200 characters",
    ),
]


@pytest.mark.parametrize(("made", "argument", "error", "sentence"), REFUSALS)
def test_a_bad_argument_is_refused_where_the_policy_is_made(
    made: Made, argument: Any, error: type[LocalQueueError], sentence: str
) -> None:
    with pytest.raises(error) as refused:
        made(argument)

    assert sentence in str(refused.value)


@pytest.mark.parametrize(("made", "least", "_"), COUNTS)
def test_the_least_count_is_accepted(made: Made, least: int, _: str) -> None:
    made(least)


@pytest.mark.parametrize(("made", "zero", "_"), SECONDS)
def test_a_short_time_is_accepted(made: Made, zero: bool, _: str) -> None:
    made(0.001)
    if zero:
        made(0)


def test_refusals_are_the_builtin_errors_of_the_reference_too() -> None:
    with pytest.raises(ValueError, match="lease timeout must be greater than zero"):
        FixedLeaseTimeout(0)
    with pytest.raises(TypeError):
        CrashLimit(True)


def test_subscribers_are_kept_in_the_order_in_which_they_were_given() -> None:
    assert StaticFanoutSubscriptions(iter(["b", "a"])).subscribers == ("b", "a")


def test_a_subscribers_queue_is_named_after_topic_and_subscriber() -> None:
    assert subscriber_queue_name("events", "billing") == "events.billing"
