"""The table of guarantees is complete, and a queue finds its rows in it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import localqueue.adapters.dispatch as dispatchers
import localqueue.adapters.notification as notifications
import localqueue.policies as policies
from localqueue.policies import (
    AtMostOnceDelivery,
    EffectivelyOnceDelivery,
    PublishSubscribeRouting,
    QueuePolicySet,
    ReturnStoredResult,
    StaticFanoutSubscriptions,
    TransactionalOutboxCommit,
    guarantees,
    resolve,
)
from localqueue.policies.guarantees import (
    DELIVERIES,
    OUT_OF_SCOPE,
    POLICIES,
    DeliveryGuarantee,
    Level,
    PolicyGuarantee,
    StoreKind,
    guarantees_of,
    store_kind,
)
from localqueue.stores.protocol import Atomicity, StoreCapabilities

STORES = {
    StoreKind.MEMORY: StoreCapabilities(ordered=True, transactional=Atomicity.STORE),
    StoreKind.HOST: StoreCapabilities(survives_restart=True, transactional=Atomicity.STORE),
    StoreKind.SHARED: StoreCapabilities(
        survives_restart=True, shared_between_hosts=True, transactional=Atomicity.STORE
    ),
    StoreKind.SIMPLE: StoreCapabilities(survives_restart=True, shared_between_hosts=True),
}
LEVELS: dict[str, tuple[dict[str, Any], list[Level]]] = {
    "at-least-once": (
        {},
        [Level.LOCAL, Level.AT_LEAST_ONCE, Level.AT_LEAST_ONCE, Level.BEST_EFFORT],
    ),
    "at-most-once": ({"delivery_policy": AtMostOnceDelivery()}, [Level.BEST_EFFORT] * 4),
    "effectively-once, with a ledger": (
        {"delivery_policy": EffectivelyOnceDelivery(idempotency_store=object())},
        [Level.LOCAL, Level.EFFECTIVELY_ONCE, Level.EFFECTIVELY_ONCE, Level.AT_LEAST_ONCE],
    ),
    "effectively-once, without a ledger": (
        {"delivery_policy": EffectivelyOnceDelivery()},
        [Level.DESCRIPTIVE] * 4,
    ),
}


def delivery_row(options: dict[str, Any], kind: StoreKind) -> DeliveryGuarantee:
    row = guarantees_of(resolve(name="jobs", **options), STORES[kind])[0]
    assert isinstance(row, DeliveryGuarantee)
    return row


@pytest.mark.parametrize("kind", StoreKind)
def test_a_stores_capabilities_say_which_column_it_is(kind: StoreKind) -> None:
    assert store_kind(STORES[kind]) is kind


@pytest.mark.parametrize("delivery", LEVELS)
def test_every_delivery_has_this_level_on_each_kind_of_store(delivery: str) -> None:
    options, levels = LEVELS[delivery]

    rows = [delivery_row(options, kind) for kind in StoreKind]

    assert [row.level for row in rows] == levels
    assert [row.store for row in rows] == list(StoreKind)
    assert {row.delivery for row in rows} == {delivery.partition(",")[0]}
    assert f"| {delivery} | {' | '.join(levels)} |" in guarantees.as_markdown()


def test_the_matrix_has_no_row_that_no_queue_can_find() -> None:
    found = [delivery_row(options, kind) for options, _ in LEVELS.values() for kind in StoreKind]

    assert len(found) == len(DELIVERIES)
    assert all(row in found for row in DELIVERIES)


def test_a_delivery_of_the_users_own_is_only_descriptive() -> None:
    class Sometimes:
        guarantee = "sometimes"
        ack_timing = "after-success"

    row = delivery_row({"delivery_policy": Sometimes()}, StoreKind.HOST)

    assert (row.delivery, row.level) == ("sometimes", Level.DESCRIPTIVE)


def test_every_public_policy_has_a_row() -> None:
    classes = {
        name
        for module in (policies, notifications, dispatchers)
        for name in module.__all__
        if inspect.isclass(value := getattr(module, name))
        and hasattr(value, "as_dict")
        and not getattr(value, "_is_protocol", False)
        and value.__name__ == name
    }
    deliveries = {"AtLeastOnceDelivery", "AtMostOnceDelivery", "EffectivelyOnceDelivery"}

    spoken_of = {name for row in POLICIES for name in row.policies}

    assert spoken_of == classes - deliveries - {QueuePolicySet.__name__}


def test_a_plain_queue_finds_one_row_for_each_of_its_policies() -> None:
    rows = guarantees_of(resolve(name="jobs"), STORES[StoreKind.HOST])

    subjects = [row.subject for row in rows if not isinstance(row, DeliveryGuarantee)]
    assert subjects == [
        "placement",
        "semantics",
        "lease",
        "acknowledgement",
        "dead letters",
        "dedupe key",
        "pull",
        "no dispatch",
        "no notification",
        "one consumer per message",
        "no subscribers",
        "order of becoming due",
        "full: wait or refuse",
        "no expiry",
        "crash limit",
        "journal",
        "codec",
    ]


@pytest.mark.parametrize(
    ("mode", "subject"),
    [
        ("copy", "fan-out by copy"),
        ("cursor", "fan-out by cursor or hybrid"),
        ("hybrid", "fan-out by cursor or hybrid"),
    ],
)
def test_a_topic_finds_the_row_of_its_way_of_fan_out(mode: str, subject: str) -> None:
    queue = resolve(
        name="events",
        routing_policy=PublishSubscribeRouting(mode),
        subscription_policy=StaticFanoutSubscriptions(["audit"]),
    )

    rows = guarantees_of(queue, STORES[StoreKind.HOST])

    subjects = [row.subject for row in rows if not isinstance(row, DeliveryGuarantee)]
    assert [name for name in subjects if name.startswith("fan-out")] == [subject]


def test_results_and_commit_of_a_delivery_have_their_rows() -> None:
    delivery = EffectivelyOnceDelivery(object(), ReturnStoredResult(), TransactionalOutboxCommit())

    rows = guarantees_of(resolve(name="jobs", delivery_policy=delivery), STORES[StoreKind.HOST])

    subjects = {row.subject for row in rows if not isinstance(row, DeliveryGuarantee)}
    assert {"stored results", "outbox"} <= subjects


def test_every_row_states_promise_failure_window_and_the_users_part() -> None:
    rows: list[DeliveryGuarantee | PolicyGuarantee] = [*DELIVERIES, *POLICIES]
    for row in rows:
        assert row.promise
        assert row.failure_window
        assert row.your_part
        assert row.level is not Level.OUT_OF_SCOPE


@pytest.mark.parametrize(
    "subject",
    [
        "exactly-once side effects",
        "global first-in first-out",
        "network file systems",
        "consensus",
        "replication across regions",
        "protocols of other brokers",
        "schema registry",
    ],
)
def test_what_is_out_of_scope_is_named_with_what_to_use_instead(subject: str) -> None:
    rows = [row for row in OUT_OF_SCOPE if subject in row.subject]

    assert len(rows) == 1
    assert rows[0].why
    assert rows[0].instead


def test_the_page_has_every_row_and_every_table_is_whole() -> None:
    page = guarantees.as_markdown()

    rows: list[DeliveryGuarantee | PolicyGuarantee] = [*DELIVERIES, *POLICIES]
    for row in rows:
        assert f"{row.promise} | {row.failure_window} | {row.your_part} |" in page
    for outside in OUT_OF_SCOPE:
        assert f"| {outside.subject} | {outside.why} | {outside.instead} |" in page
    for table in page.strip().split("\n\n"):
        assert len({line.count("|") for line in table.splitlines()}) == 1
