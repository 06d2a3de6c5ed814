"""A policy set bundles policies, and its presets name a delivery."""

from __future__ import annotations

from typing import Any

import pytest

from localqueue.policies import (
    AT_LEAST_ONCE_DELIVERY,
    AtMostOnceDelivery,
    BoundedBackpressure,
    CrashLimit,
    EffectivelyOnceDelivery,
    Journal,
    JsonCodec,
    MessageTTL,
    PriorityOrdering,
    QueuePolicySet,
    QueueSemantics,
    ReturnStoredResult,
    TransactionalOutboxCommit,
    resolve,
)

KEYS = [
    "semantics",
    "locality_policy",
    "lease_policy",
    "acknowledgement_policy",
    "dead_letter_policy",
    "deduplication_policy",
    "delivery_policy",
    "consumption_policy",
    "dispatch_policy",
    "notification_policy",
    "ordering_policy",
    "routing_policy",
    "subscription_policy",
    "backpressure",
]


def test_an_empty_set_shows_its_fourteen_keys_in_order_and_nothing_set() -> None:
    described = QueuePolicySet().as_dict()

    assert list(described) == KEYS
    assert set(described.values()) == {None}


def test_a_set_shows_the_description_of_each_member() -> None:
    described = QueuePolicySet(
        semantics=QueueSemantics(ordering="priority"), ordering_policy=PriorityOrdering()
    ).as_dict()

    assert described["semantics"] == QueueSemantics(ordering="priority").as_dict()
    assert described["ordering_policy"] == PriorityOrdering().as_dict()
    assert described["backpressure"] is None


@pytest.mark.parametrize(
    ("option", "policy"),
    [
        ("expiry_policy", MessageTTL(5)),
        ("crash_limit_policy", CrashLimit(5)),
        ("journal_policy", Journal(payloads=True)),
        ("codec_policy", JsonCodec()),
    ],
)
def test_a_newer_option_is_shown_only_when_it_is_set(option: str, policy: Any) -> None:
    described = QueuePolicySet(**{option: policy}).as_dict()

    assert list(described) == [*KEYS, option]
    assert described[option] == policy.as_dict()


def test_given_lists_only_what_is_set() -> None:
    ordering = PriorityOrdering()

    assert QueuePolicySet(ordering_policy=ordering).given() == {"ordering_policy": ordering}


def test_sets_are_equal_by_value() -> None:
    assert QueuePolicySet.at_most_once() == QueuePolicySet(delivery_policy=AtMostOnceDelivery())
    assert QueuePolicySet.at_most_once() != QueuePolicySet.at_least_once()


def test_at_least_once_uses_the_shared_instance() -> None:
    assert QueuePolicySet.at_least_once().delivery_policy is AT_LEAST_ONCE_DELIVERY


def test_effectively_once_takes_ledger_results_and_commit() -> None:
    ledger = object()
    results, commit = ReturnStoredResult(), TransactionalOutboxCommit()

    chosen = QueuePolicySet.effectively_once(
        idempotency_store=ledger, result_policy=results, commit_policy=commit
    )

    assert chosen.delivery_policy == EffectivelyOnceDelivery(ledger, results, commit)


@pytest.mark.parametrize(
    ("preset", "delivery"),
    [
        (QueuePolicySet.at_least_once, "at-least-once"),
        (QueuePolicySet.at_most_once, "at-most-once"),
        (QueuePolicySet.effectively_once, "effectively-once"),
    ],
)
def test_a_preset_takes_the_other_policies_and_makes_a_queue_of_that_delivery(
    preset: Any, delivery: str
) -> None:
    chosen = preset(ordering_policy=PriorityOrdering(), backpressure=BoundedBackpressure(9))

    queue = resolve(name="jobs", policy_set=chosen)

    assert queue.semantics == QueueSemantics(delivery=delivery, ordering="priority")
    assert queue.maxsize == 9
    assert chosen.as_dict()["delivery_policy"]["guarantee"] == delivery


@pytest.mark.parametrize(
    "preset",
    [
        QueuePolicySet.at_least_once,
        QueuePolicySet.at_most_once,
        QueuePolicySet.effectively_once,
    ],
)
@pytest.mark.parametrize("option", ["delivery_policy", "maxsize", "colour"])
def test_a_preset_takes_no_second_delivery_and_no_unknown_option(preset: Any, option: str) -> None:
    with pytest.raises(TypeError, match=option):
        preset(**{option: 1})
