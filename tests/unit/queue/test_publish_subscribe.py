"""Topics through the queue: who gets what, from when on, and independently of whom."""

from __future__ import annotations

from typing import Any

import pytest

from localqueue.errors import (
    CompatibilityWarning,
    ConfigurationError,
    InvalidArgument,
    InvalidMessage,
    JournalForeign,
)
from localqueue.message import QueueMessage
from localqueue.policies import (
    AtMostOnceDelivery,
    DynamicFanoutSubscriptions,
    Journal,
    PriorityOrdering,
    PublishSubscribeRouting,
    StaticFanoutSubscriptions,
)
from localqueue.stores.settings import FANOUT_MODES
from localqueue.testing import ManualClock
from tests.unit.queue.phrases import NewQueue, Queue, drain, values

EVERY_MODE = pytest.mark.parametrize("mode", FANOUT_MODES)
LOGS = pytest.mark.parametrize("mode", ["cursor", "hybrid"])


def static(new_queue: NewQueue, mode: str, *subscribers: str, **options: Any) -> Queue:
    return new_queue(
        "orders",
        routing_policy=PublishSubscribeRouting(mode),
        subscription_policy=StaticFanoutSubscriptions(subscribers),
        **options,
    )


def dynamic(new_queue: NewQueue, mode: str, **options: Any) -> Queue:
    return new_queue(
        "orders",
        routing_policy=PublishSubscribeRouting(mode),
        subscription_policy=DynamicFanoutSubscriptions(),
        **options,
    )


@EVERY_MODE
def test_every_subscriber_gets_every_message_in_its_own_queue(
    new_queue: NewQueue, mode: str
) -> None:
    topic = static(new_queue, mode, "billing", "audit")

    answer = topic.put("a")
    topic.put_many(["b", "c"])

    billing = topic.subscriber_queue("billing")
    assert (billing.name, topic.subscriber_queue_name("billing")) == ("orders.billing",) * 2
    assert answer.queue == "orders.billing"
    assert drain(billing) == ["a", "b", "c"]
    assert drain(new_queue("orders.audit")) == ["a", "b", "c"]
    assert topic.stats().total == 0


@EVERY_MODE
def test_subscribers_lease_fail_and_die_on_their_own(new_queue: NewQueue, mode: str) -> None:
    topic = static(new_queue, mode, "one", "two", "three")
    one, two, three = (topic.subscriber_queue(name) for name in ("one", "two", "three"))
    topic.put("a")

    assert one.ack(one.get_message())
    two.release(two.get_message(), error="try again")
    three.dead_letter(three.get_message(), error="give up")

    assert (one.stats().total, two.qsize(), three.qsize()) == (0, 1, 0)
    again = two.get_message()
    assert (again.attempts, again.failures) == (2, 1)
    assert values(three.dead_letters()) == ["a"]
    assert (one.dead_letters(), two.dead_letters()) == ([], [])


@EVERY_MODE
def test_a_subscribers_queue_keeps_the_promises_of_its_topic(
    new_queue: NewQueue, mode: str
) -> None:
    topic = static(
        new_queue, mode, "one", lease_timeout=7, maxsize=5, delivery_policy=AtMostOnceDelivery()
    )

    queue = topic.subscriber_queue("one")
    topic.put("a")

    assert (queue.lease_timeout, queue.settings().maxsize) == (7, 5)
    assert queue.routing_policy.pattern == "point-to-point"
    assert queue.settings().fanout is None
    assert queue.get() == "a"
    assert queue.stats().total == 0


def test_in_copy_mode_copies_have_ids_of_their_own_and_in_a_log_they_share_one(
    new_queue: NewQueue,
) -> None:
    def ids(mode: str) -> set[str]:
        topic = new_queue(
            mode,
            routing_policy=PublishSubscribeRouting(mode),
            subscription_policy=StaticFanoutSubscriptions(["one", "two"]),
        )
        topic.put("a")
        return {topic.subscriber_queue(name).get_message().id for name in ("one", "two")}

    assert [len(ids(mode)) for mode in ("copy", "cursor", "hybrid")] == [2, 1, 1]


@EVERY_MODE
def test_a_key_is_each_subscribers_own(new_queue: NewQueue, mode: str) -> None:
    topic = static(new_queue, mode, "one", "two")
    one, two = topic.subscriber_queue("one"), topic.subscriber_queue("two")
    topic.put("a", dedupe_key="k")
    assert topic.put("a", dedupe_key="k").duplicate

    assert one.ack(one.get_message())
    again = topic.put("b", dedupe_key="k")

    assert not again.duplicate
    assert again.dedupe_key == "k:one"
    assert (drain(one), drain(two)) == (["b"], ["a"])


@EVERY_MODE
def test_what_put_returned_is_the_first_subscribers_message(new_queue: NewQueue, mode: str) -> None:
    topic = static(new_queue, mode, "one", "two")

    message = topic.put("a")

    assert topic.cancel(message)
    assert topic.subscriber_queue("one").stats().total == 0
    assert topic.subscriber_queue("two").qsize() == 1


def test_a_cursor_takes_nothing_out_of_order(new_queue: NewQueue) -> None:
    topic = static(new_queue, "cursor", "one")

    with pytest.raises(InvalidMessage, match="publication order"):
        topic.put("a", delay=5)

    assert topic.subscriber_queue("one").stats().total == 0


@pytest.mark.parametrize("mode", ["copy", "hybrid"])
def test_delay_and_priority_reach_every_subscriber(
    new_queue: NewQueue, clock: ManualClock, mode: str
) -> None:
    topic = static(new_queue, mode, "one", "two", ordering_policy=PriorityOrdering())
    topic.put("plain")
    topic.put("urgent", priority=5)
    topic.put("later", delay=60)

    for name in ("one", "two"):
        assert drain(topic.subscriber_queue(name)) == ["urgent", "plain"]
    clock.advance(60)
    for name in ("one", "two"):
        assert drain(topic.subscriber_queue(name)) == ["later"]


# --- static subscribers -------------------------------------------------------------------------
@EVERY_MODE
def test_a_list_that_changes_adds_from_now_on_and_takes_nobody_away(
    new_queue: NewQueue, mode: str
) -> None:
    static(new_queue, mode, "old", "stays").put("a")

    changed = static(new_queue, mode, "stays", "new")
    changed.put("b")

    assert changed.subscribers() == ["old", "stays", "new"]
    assert drain(changed.subscriber_queue("stays")) == ["a", "b"]
    assert drain(changed.subscriber_queue("new")) == ["b"]
    assert drain(new_queue("orders.old")) == ["a", "b"]


@EVERY_MODE
def test_whom_a_list_does_not_name_can_be_taken_away_on_purpose(
    new_queue: NewQueue, mode: str
) -> None:
    static(new_queue, mode, "old", "stays").put("a")
    changed = static(new_queue, mode, "stays")

    assert changed.unsubscribe("old")
    changed.put("b")

    assert changed.subscribers() == ["stays"]
    assert drain(changed.subscriber_queue("stays")) == ["a", "b"]
    assert drain(new_queue("orders.old")) == (["a"] if mode == "copy" else [])


def test_the_same_list_again_changes_nothing(new_queue: NewQueue) -> None:
    first = static(new_queue, "copy", "one", "two")
    first.put("a")
    before = first.journal()

    static(new_queue, "copy", "one", "two").subscribers()

    assert first.journal() == before


def test_a_static_list_cannot_be_changed_by_calls(new_queue: NewQueue) -> None:
    topic = static(new_queue, "copy", "one")

    with pytest.raises(ConfigurationError, match=r"DynamicFanoutSubscriptions\(\)"):
        topic.subscribe("two")
    with pytest.raises(ConfigurationError, match=r"DynamicFanoutSubscriptions\(\)"):
        topic.unsubscribe("one")

    assert topic.subscribers() == ["one"]


def test_an_unknown_subscriber_has_no_queue(new_queue: NewQueue, queue: Queue) -> None:
    topic = static(new_queue, "copy", "one")

    for ask in (topic.subscriber_queue, topic.subscriber_queue_name):
        with pytest.raises(InvalidArgument, match="unknown subscriber 'two'"):
            ask("two")
    with pytest.raises(ConfigurationError, match="does not have configured subscribers"):
        queue.subscriber_queue("one")


def test_a_topic_without_subscribers_warns_when_built_and_refuses_puts(new_queue: NewQueue) -> None:
    with pytest.warns(CompatibilityWarning, match="requires configured subscribers"):
        topic = new_queue("orders", routing_policy=PublishSubscribeRouting())

    with pytest.raises(ConfigurationError, match="requires configured subscribers"):
        topic.put("a")


# --- dynamic subscribers ------------------------------------------------------------------------
@EVERY_MODE
def test_subscribers_come_and_go(new_queue: NewQueue, mode: str) -> None:
    topic = dynamic(new_queue, mode)
    with pytest.raises(InvalidMessage, match="requires configured subscribers"):
        topic.put("nobody is there")

    assert topic.subscribe("one")
    assert not topic.subscribe("one")
    topic.put("a")
    assert topic.subscribe("two")
    topic.put("b")

    assert topic.subscribers() == ["one", "two"]
    assert drain(topic.subscriber_queue("two")) == ["b"]
    assert topic.unsubscribe("two")
    assert not topic.unsubscribe("two")
    topic.put("c")
    assert drain(topic.subscriber_queue("one")) == ["a", "b", "c"]
    assert drain(new_queue("orders.two")) == []


@EVERY_MODE
def test_another_object_sees_who_subscribes(new_queue: NewQueue, mode: str) -> None:
    dynamic(new_queue, mode).subscribe("one")

    other = dynamic(new_queue, mode)
    other.put("a")

    assert other.subscriber_queue("one").get(block=False) == "a"


@EVERY_MODE
def test_a_late_subscriber_may_begin_with_the_oldest_that_is_kept(
    new_queue: NewQueue, mode: str
) -> None:
    topic = dynamic(new_queue, mode, journal_policy=Journal(payloads=True))
    topic.subscribe("early")
    topic.put_many(["a", "b"])
    assert drain(topic.subscriber_queue("early")) == ["a", "b"]

    topic.subscribe("late", start="earliest")
    topic.put("c")

    assert drain(topic.subscriber_queue("late")) == ["a", "b", "c"]
    assert drain(topic.subscriber_queue("early")) == ["c"]


@EVERY_MODE
def test_a_late_subscriber_may_begin_after_a_position(new_queue: NewQueue, mode: str) -> None:
    topic = dynamic(new_queue, mode, journal_policy=Journal(payloads=True))
    topic.subscribe("early")
    topic.put("a")
    position = topic.journal()[-1].position
    topic.put("b")

    topic.subscribe("late", start=position)

    assert drain(topic.subscriber_queue("late")) == ["b"]


@EVERY_MODE
def test_a_start_in_the_past_needs_kept_payloads(new_queue: NewQueue, mode: str) -> None:
    topic = dynamic(new_queue, mode)

    with pytest.raises(ConfigurationError, match=r"journal_policy=Journal\(payloads=True\)"):
        topic.subscribe("late", start="earliest")

    assert topic.subscribers() == []


def test_payloads_that_another_object_asked_for_are_kept_for_all(new_queue: NewQueue) -> None:
    early = dynamic(new_queue, "copy")
    early.subscribe("one")
    early.put("not kept")

    dynamic(new_queue, "copy", journal_policy=Journal(payloads=True)).put("kept")

    assert early.subscribe("late", start="earliest")
    assert drain(early.subscriber_queue("late")) == ["kept"]


def test_a_position_of_somewhere_else_is_refused(new_queue: NewQueue) -> None:
    topic = dynamic(new_queue, "copy", journal_policy=Journal(payloads=True))

    with pytest.raises(JournalForeign):
        topic.subscribe("late", start="0" * 32)

    assert topic.subscribers() == []


@EVERY_MODE
def test_a_late_subscriber_retries_what_it_read_of_the_past(
    new_queue: NewQueue, clock: ManualClock, mode: str
) -> None:
    topic = dynamic(new_queue, mode, journal_policy=Journal(payloads=True))
    topic.subscribe("early")
    topic.put("a", headers={"h": "v"})
    topic.subscribe("late", start="earliest")
    late = topic.subscriber_queue("late")

    late.release(late.get_message(), delay=5)
    clock.advance(5)
    again: QueueMessage[Any] = late.get_message(block=False)

    assert (again.value, again.attempts, again.headers) == ("a", 2, {"h": "v"})


@LOGS
def test_a_value_lives_until_the_slowest_has_passed_it(new_queue: NewQueue, mode: str) -> None:
    topic = static(new_queue, mode, "fast", "slow")
    topic.put_many(f"{number}: {'x' * 10_000}" for number in range(5))
    fast, slow = topic.subscriber_queue("fast"), topic.subscriber_queue("slow")
    drain(fast)

    assert (fast.stats().total, slow.qsize()) == (0, 5)
    assert [value[0] for value in drain(slow)] == ["0", "1", "2", "3", "4"]
