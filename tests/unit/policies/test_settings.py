"""What a policy asks the store to act on."""

from __future__ import annotations

from typing import Any

import pytest

from localqueue.policies import (
    BestEffortOrdering,
    BoundedBackpressure,
    CrashLimit,
    DropNewestBackpressure,
    DropOldestBackpressure,
    FifoReadyOrdering,
    Journal,
    MessageTTL,
    NoExpiry,
    OrderingKeys,
    OverflowBackpressure,
    PointToPointRouting,
    PriorityOrdering,
    PublishSubscribeRouting,
    RejectingBackpressure,
    ThrottlingBackpressure,
)
from localqueue.stores.settings import (
    DEFAULT_SETTINGS,
    FANOUT_MODES,
    ORDERINGS,
    OVERFLOWS,
    QueueSettings,
)


def capacity(maxsize: int, overflow: str, to: str | None = None, delay: float = 0.0) -> Any:
    return {
        "maxsize": maxsize,
        "overflow": overflow,
        "overflow_to": to,
        "throttle_delay": delay,
    }


SETTINGS: list[tuple[Any, dict[str, object]]] = [
    (FifoReadyOrdering(), {"ordering": "fifo-ready"}),
    (PriorityOrdering(), {"ordering": "priority"}),
    (BestEffortOrdering(), {"ordering": "best-effort"}),
    (OrderingKeys(), {"ordering": "per-key"}),
    (BoundedBackpressure(7), capacity(7, "block")),
    (BoundedBackpressure(7, "reject"), capacity(7, "reject")),
    (RejectingBackpressure(7), capacity(7, "reject")),
    (DropNewestBackpressure(7), capacity(7, "drop-newest")),
    (DropOldestBackpressure(7), capacity(7, "drop-oldest")),
    (ThrottlingBackpressure(7, max_delay=2), capacity(7, "throttle", delay=2.0)),
    (OverflowBackpressure(7), capacity(7, "overflow")),
    (OverflowBackpressure(7, to="spill"), capacity(7, "overflow", to="spill")),
    (NoExpiry(), {"ttl": None}),
    (MessageTTL(60), {"ttl": 60.0, "on_expiry": "drop"}),
    (MessageTTL(60, "dead-letter"), {"ttl": 60.0, "on_expiry": "dead-letter"}),
    (CrashLimit(5), {"crash_limit": 5}),
    (
        Journal(enabled=False, max_age=5, max_rows=9),
        {
            "journal": False,
            "journal_payloads": False,
            "journal_max_age": 5.0,
            "journal_max_rows": 9,
        },
    ),
    (PointToPointRouting(), {"fanout": None}),
]
SETTINGS += [(PublishSubscribeRouting(mode), {"fanout": mode}) for mode in FANOUT_MODES]


@pytest.mark.parametrize(("policy", "settings"), SETTINGS)
def test_a_policy_sets_these_fields_of_the_queues_row(
    policy: Any, settings: dict[str, object]
) -> None:
    assert policy.settings() == settings
    assert DEFAULT_SETTINGS.changed(settings).as_dict().items() >= settings.items()


def test_every_setting_has_a_policy_but_the_pause() -> None:
    named = {name for policy, _ in SETTINGS for name in policy.settings()}

    assert named == set(QueueSettings().as_dict()) - {"paused"}


def test_every_ordering_and_every_overflow_of_the_store_has_a_policy() -> None:
    values = [policy.settings() for policy, _ in SETTINGS]

    assert {value["ordering"] for value in values if "ordering" in value} == set(ORDERINGS)
    assert {value["overflow"] for value in values if "overflow" in value} == set(OVERFLOWS)


def test_the_default_policies_say_what_an_untouched_queue_does() -> None:
    defaults = (
        FifoReadyOrdering(),
        BoundedBackpressure(),
        NoExpiry(),
        CrashLimit(),
        Journal(),
        PointToPointRouting(),
    )

    for policy in defaults:
        assert DEFAULT_SETTINGS.changed(policy.settings()) == DEFAULT_SETTINGS
