"""What a put asks for is checked, and what most puts ask for is checked once."""

from __future__ import annotations

from typing import Any

import pytest

from localqueue.errors import InvalidMessage, LocalQueueError
from localqueue.policies import EffectivelyOnceDelivery
from localqueue.policies.resolve import resolve
from localqueue.policies.resolved import ResolvedPolicies
from localqueue.put_options import PutMakers, PutOptions, put_options
from localqueue.stores.protocol import Put
from localqueue.stores.settings import QueueSettings

IN_FORCE = QueueSettings()


def test_puts_that_ask_for_nothing_share_their_maker() -> None:
    makers = PutMakers(policies())

    first = makers.maker(put_options(), IN_FORCE)

    assert makers.maker(put_options(), IN_FORCE) is first
    assert first("a") == first("a")


@pytest.mark.parametrize(
    "options",
    [
        put_options(),
        put_options(delay=1.0, headers={"trace": "1"}),
        put_options(dedupe_key=lambda value: f"key-{value}"),
    ],
    ids=["nothing", "the same for all", "a key for each"],
)
def test_the_puts_of_a_batch_are_those_made_one_by_one(options: PutOptions) -> None:
    make = PutMakers(policies()).maker(options, IN_FORCE)
    values: list[Any] = [1, "a", {"b": [2]}]

    assert make.many(values) == [make(value) for value in values]
    assert {type(put) for put in make.many(values)} == {Put}


@pytest.mark.parametrize(
    "options",
    [
        put_options(delay=1.0),
        put_options(dedupe_key="key"),
        put_options(headers={"trace": "1"}),
        put_options(ttl=60.0),
        put_options(request_id="request"),
    ],
    ids=["delay", "dedupe_key", "headers", "ttl", "request_id"],
)
def test_a_wish_is_for_its_own_puts_only(options: PutOptions) -> None:
    makers = PutMakers(policies())
    plain = makers.maker(put_options(), IN_FORCE)("a")

    wished = makers.maker(options, IN_FORCE)("a")

    assert wished != plain
    assert wished.body == plain.body
    assert makers.maker(put_options(), IN_FORCE)("a") == plain


def test_settings_that_changed_are_checked_anew() -> None:
    makers = PutMakers(policies())
    first = makers.maker(put_options(), IN_FORCE)

    changed = makers.maker(put_options(), QueueSettings(ordering="priority"))

    assert changed is not first
    assert changed("a") == first("a")


@pytest.mark.parametrize(
    "wrong",
    [{"delay": False}, {"delay": None}, {"priority": False}, {"priority": 0.0}, {"ttl": 0}],
    ids=str,
)
def test_what_only_looks_like_a_default_is_refused(wrong: dict[str, Any]) -> None:
    makers = PutMakers(policies())
    makers.maker(put_options(), IN_FORCE)

    with pytest.raises(LocalQueueError):
        makers.maker(put_options(**wrong), IN_FORCE)


def test_a_queue_that_takes_no_plain_puts_refuses_each_of_them() -> None:
    makers = PutMakers(policies(delivery_policy=EffectivelyOnceDelivery()))

    for _ in range(2):
        with pytest.raises(InvalidMessage, match="requires a dedupe_key"):
            makers.maker(put_options(), IN_FORCE)


def policies(**given: Any) -> ResolvedPolicies:
    return resolve(name="jobs", **given)
