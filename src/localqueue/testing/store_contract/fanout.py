"""Topics: what is published reaches every subscriber, and each goes its own way with it."""

from __future__ import annotations

from typing import Any

import pytest

from localqueue.errors import ConfigurationError, InvalidArgument, InvalidMessage
from localqueue.outcome import Ack
from localqueue.stores.protocol import Cancelled, Fate, QueueIsFull, QueueStore, Settle, Settled
from localqueue.testing.store_contract.phrases import (
    BOOM,
    NOW,
    StoreCase,
    ack,
    answer,
    dead_letter,
    drain,
    lease,
    lease_one,
    new_put,
    put,
    put_all,
    read,
    receipt,
    release,
    value_of,
    values,
)

TOPIC = "news"
A = f"{TOPIC}.a"
B = f"{TOPIC}.b"
MODES = ("copy", "cursor", "hybrid")


def _topic(store: QueueStore, mode: str, *subscribers: str, **settings: Any) -> None:
    store.configure(TOPIC, {"fanout": mode, **settings}, now=NOW)
    for subscriber in subscribers:
        assert store.subscribe(TOPIC, subscriber, now=NOW)


def publish(store: QueueStore, value: Any = "a", **options: Any) -> Any:
    return put(store, value, queue=TOPIC, **options)


every_mode = pytest.mark.parametrize("mode", MODES)
by_cursor = pytest.mark.parametrize("mode", ["cursor", "hybrid"])


class Subscriptions(StoreCase):
    """Who gets what is published."""

    def test_subscribers_are_rows_of_the_store(self, store: QueueStore) -> None:
        _topic(store, "copy", "a", "b")

        assert store.subscribers(TOPIC) == ["a", "b"]
        assert not store.subscribe(TOPIC, "a", now=NOW)
        assert store.unsubscribe(TOPIC, "a", now=NOW)
        assert not store.unsubscribe(TOPIC, "a", now=NOW)
        assert store.subscribers(TOPIC) == ["b"]
        assert store.subscribers("nowhere") == []

    @pytest.mark.parametrize("name", ["", "a.b", "a:b", " a"])
    def test_a_name_that_cannot_be_a_subscribers_is_refused(
        self, store: QueueStore, name: str
    ) -> None:
        _topic(store, "copy")

        with pytest.raises(InvalidArgument):
            store.subscribe(TOPIC, name, now=NOW)

        assert store.subscribers(TOPIC) == []

    def test_a_subscriber_has_the_settings_of_its_topic_as_its_own(self, store: QueueStore) -> None:
        _topic(store, "copy", "a", maxsize=5, overflow="reject")

        row = store.settings(A)

        assert row is not None
        assert (row[0].maxsize, row[0].overflow, row[0].fanout) == (5, "reject", None)

    @every_mode
    def test_a_topic_without_subscribers_takes_nothing(self, store: QueueStore, mode: str) -> None:
        _topic(store, mode)

        with pytest.raises(InvalidMessage, match="requires configured subscribers"):
            publish(store)

    @every_mode
    def test_subscriptions_survive_a_reopening(self, store: QueueStore, mode: str) -> None:
        _topic(store, mode, "a", "b")
        publish(store, 1)
        ack(store, lease_one(store, queue=A))
        publish(store, 2)

        again = self.reopened(store)
        publish(again, 3)

        assert again.subscribers(TOPIC) == ["a", "b"]
        assert drain(again, queue=A) == [2, 3]
        assert drain(again, queue=B) == [1, 2, 3]


class FanOut(StoreCase):
    """The same for every mode."""

    @every_mode
    def test_every_subscriber_gets_every_message_in_order(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", "b")
        for number in range(5):
            publish(store, number, now=NOW + number)

        assert store.qsize(A, now=NOW + 9) == 5
        assert store.stats(B, now=NOW + 9).ready == 5
        assert drain(store, queue=A, now=NOW + 9) == list(range(5))
        assert drain(store, queue=B, now=NOW + 9) == list(range(5))

    @every_mode
    def test_a_batch_of_publications_is_handed_out_as_one(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", "b")

        put_all(store, range(5), queue=TOPIC)

        assert values(lease(store, 9, queue=A)) == list(range(5))
        assert values(lease(store, 2, queue=B)) == [0, 1]
        assert values(lease(store, 9, queue=B)) == [2, 3, 4]

    @every_mode
    def test_the_topic_itself_holds_no_message(self, store: QueueStore, mode: str) -> None:
        _topic(store, mode, "a")
        publish(store)

        assert store.qsize(TOPIC, now=NOW) == 0
        assert store.stats(TOPIC, now=NOW).total == 0
        assert lease(store, 9, queue=TOPIC) == []

    @every_mode
    def test_the_answer_is_a_message_of_a_subscriber(self, store: QueueStore, mode: str) -> None:
        _topic(store, mode, "a", "b")

        message = publish(store, "x")

        assert message.queue == A
        assert message.state == "ready"
        assert lease_one(store, queue=A).id == message.id

    @every_mode
    def test_a_message_carries_its_headers_to_every_subscriber(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", "b")
        publish(store, headers=b'{"trace":"1"}')

        assert lease_one(store, queue=A).headers == b'{"trace":"1"}'
        assert lease_one(store, queue=B).headers == b'{"trace":"1"}'

    @every_mode
    def test_subscribers_lease_and_acknowledge_independently(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", "b")
        publish(store)
        of_a = lease_one(store, queue=A)

        assert lease(store, 1, queue=A) == []
        of_b = lease_one(store, queue=B)
        assert ack(store, of_a) == [True]
        assert read(store, of_b).state == "inflight"
        assert ack(store, of_b) == [True]

    @every_mode
    def test_a_receipt_of_one_subscriber_is_worth_nothing_to_another(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", "b")
        publish(store)
        of_a = lease_one(store, queue=A)
        of_b = lease_one(store, queue=B)

        crossed = receipt(of_b._replace(token=of_a.token))

        assert store.ack_many([crossed], now=NOW) == [False]

    @every_mode
    def test_subscribers_retry_independently(self, store: QueueStore, mode: str) -> None:
        _topic(store, mode, "a", "b")
        publish(store, "first")
        publish(store, "second", now=NOW + 1)
        release(store, lease_one(store, queue=A, now=NOW + 2), error=BOOM, now=NOW + 3)

        assert values(lease(store, 9, queue=A, now=NOW + 4)) == ["second", "first"]
        of_b = lease(store, 9, queue=B, now=NOW + 4)
        assert values(of_b) == ["first", "second"]
        assert [message.attempts for message in of_b] == [1, 1]
        assert [message.last_error for message in of_b] == [None, None]

    @every_mode
    def test_a_subscribers_lease_that_ran_out_comes_back_to_it_alone(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", "b")
        publish(store)
        lease_one(store, queue=A, timeout=10.0)
        ack(store, lease_one(store, queue=B))

        assert lease_one(store, queue=A, now=NOW + 11).attempts == 2
        assert lease(store, 1, queue=B, now=NOW + 11) == []

    @every_mode
    def test_subscribers_have_dead_letters_of_their_own(self, store: QueueStore, mode: str) -> None:
        _topic(store, mode, "a", "b")
        publish(store, "x")
        dead = lease_one(store, queue=A)
        dead_letter(store, dead, error=BOOM)

        assert values(store.dead_letters(A)) == ["x"]
        assert store.dead_letters(B) == []
        assert store.dead_letter_ids(A) == [dead.id for dead in store.dead_letters(A)]
        assert drain(store, queue=B) == ["x"]
        assert store.requeue_dead_many(A, [dead.id], now=NOW + 1) == [True]
        assert drain(store, queue=A, now=NOW + 2) == ["x"]

    @every_mode
    def test_a_paused_subscriber_does_not_hold_up_the_others(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", "b")
        store.configure(A, {"paused": True}, now=NOW)
        publish(store, "x")

        assert lease(store, 1, queue=A) == []
        assert drain(store, queue=B) == ["x"]
        store.configure(A, {"paused": False}, now=NOW)
        assert drain(store, queue=A) == ["x"]

    @every_mode
    def test_a_duplicate_publication_reaches_nobody_twice(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", "b")
        first = answer(store, "x", queue=TOPIC, dedupe_key="k")

        second = answer(store, "y", queue=TOPIC, dedupe_key="k")

        assert (first.fate, second.fate) == (Fate.STORED, Fate.DUPLICATE)
        assert second.message.id == first.message.id
        assert drain(store, queue=A) == ["x"]
        assert drain(store, queue=B) == ["x"]

    @every_mode
    def test_each_subscriber_has_a_dedupe_key_of_its_own(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", "b")
        publish(store, "x", dedupe_key="k")

        assert lease_one(store, queue=A).dedupe_key == "k:a"
        assert lease_one(store, queue=B).dedupe_key == "k:b"

    @every_mode
    def test_a_subscriber_whose_message_is_gone_gets_the_key_again_and_the_other_does_not(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", "b")
        publish(store, "x", dedupe_key="k")
        drain(store, queue=A)

        again = answer(store, "y", queue=TOPIC, dedupe_key="k", now=NOW + 1)

        assert again.fate is Fate.STORED
        assert again.message.queue == A
        assert drain(store, queue=A, now=NOW + 2) == ["y"]
        assert drain(store, queue=B, now=NOW + 2) == ["x"]

    @every_mode
    def test_a_window_keeps_a_publication_from_coming_again(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", "b")
        publish(store, "x", dedupe_key="k", dedupe_window=60.0)
        drain(store, queue=A)
        drain(store, queue=B)

        again = answer(store, "x", queue=TOPIC, dedupe_key="k", now=NOW + 59)

        assert again.fate is Fate.DUPLICATE
        assert drain(store, queue=A, now=NOW + 59) == []
        assert drain(store, queue=B, now=NOW + 59) == []

    @every_mode
    def test_a_repeated_request_is_published_once(self, store: QueueStore, mode: str) -> None:
        _topic(store, mode, "a", "b")
        publish(store, "x", request_id="r")

        again = answer(store, "x", queue=TOPIC, request_id="r", now=NOW + 1)

        assert again.fate is Fate.DUPLICATE
        assert drain(store, queue=A, now=NOW + 2) == ["x"]
        assert drain(store, queue=B, now=NOW + 2) == ["x"]

    @every_mode
    def test_a_subscriber_that_is_full_refuses_the_publication_for_all(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", "b")
        store.configure(B, {"maxsize": 1, "overflow": "reject"}, now=NOW)
        publish(store, 1)

        with pytest.raises(QueueIsFull) as full:
            publish(store, 2)

        assert full.value.queue == B
        assert drain(store, queue=A) == [1]
        assert drain(store, queue=B) == [1]

    @every_mode
    def test_a_publication_expires_for_those_who_have_not_had_it(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", "b")
        publish(store, "short", ttl=30.0)
        publish(store, "long")
        of_a = lease(store, 2, queue=A, timeout=1000.0)

        assert values(of_a) == ["short", "long"]
        assert values(lease(store, 9, queue=B, now=NOW + 60)) == ["long"]
        assert ack(store, *of_a, now=NOW + 61) == [True, True]

    @every_mode
    def test_unsubscribing_stops_what_comes_later(self, store: QueueStore, mode: str) -> None:
        _topic(store, mode, "a", "b")
        store.unsubscribe(TOPIC, "a", now=NOW)

        publish(store, "x", now=NOW + 1)

        assert lease(store, 9, queue=A, now=NOW + 2) == []
        assert drain(store, queue=B, now=NOW + 2) == ["x"]

    @every_mode
    def test_what_an_unsubscribed_queue_has_leased_is_still_its_own(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", "b")
        publish(store)
        leased = lease_one(store, queue=A)

        store.unsubscribe(TOPIC, "a", now=NOW)

        assert read(store, leased).state == "inflight"
        assert ack(store, leased) == [True]

    @every_mode
    def test_purging_a_subscriber_leaves_the_others(self, store: QueueStore, mode: str) -> None:
        _topic(store, mode, "a", "b")
        put_all(store, range(3), queue=TOPIC)
        lease_one(store, queue=A)

        assert store.purge(A, now=NOW) == 3

        assert store.stats(A, now=NOW).total == 0
        assert lease(store, 9, queue=A, now=NOW + 1000) == []
        assert drain(store, queue=B) == [0, 1, 2]
        publish(store, "new", now=NOW + 1)
        assert drain(store, queue=A, now=NOW + 2) == ["new"]

    @every_mode
    def test_purging_a_topic_takes_nothing_from_its_subscribers(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a")
        publish(store, "x")

        store.purge(TOPIC, now=NOW)

        assert store.subscribers(TOPIC) == ["a"]
        assert drain(store, queue=A) == ["x"]

    @every_mode
    def test_a_follow_up_of_a_settlement_can_be_a_publication(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", "b")
        put(store)
        settle = Settle(receipt(lease_one(store)), Ack(), puts=(new_put("x", queue=TOPIC),))

        assert store.settle(settle, now=NOW) is Settled.DONE
        assert drain(store, queue=A) == ["x"]
        assert drain(store, queue=B) == ["x"]

    @every_mode
    def test_peeking_and_reading_show_what_a_subscriber_will_get(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a")
        put_all(store, range(3), queue=TOPIC)

        shown = store.peek(A, 2, now=NOW)

        assert values(shown) == [0, 1]
        assert value_of(read(store, shown[1])) == 1
        assert read(store, shown[1]).attempts == 0
        assert store.waiting(A, now=NOW) == 3

    @every_mode
    def test_a_subscribers_waiting_message_can_be_cancelled_for_it_alone(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", "b")
        put_all(store, range(3), queue=TOPIC)
        second = store.peek(A, 2, now=NOW)[1]

        assert store.cancel(A, second.id, now=NOW) is Cancelled.REMOVED

        assert store.qsize(A, now=NOW) == 2
        assert drain(store, queue=A) == [0, 2]
        assert drain(store, queue=B) == [0, 1, 2]


class CopyFanOut(StoreCase):
    """A message of its own for every subscriber."""

    def test_each_copy_has_an_id_of_its_own(self, store: QueueStore) -> None:
        _topic(store, "copy", "a", "b")
        publish(store)

        assert lease_one(store, queue=A).id != lease_one(store, queue=B).id

    def test_delay_priority_and_key_are_handed_on(self, store: QueueStore) -> None:
        _topic(store, "copy", "a", ordering="priority")
        publish(store, "low")
        publish(store, "high", priority=5, delay=10.0)

        assert values(lease(store, 1, queue=A)) == ["low"]
        assert lease_one(store, queue=A, now=NOW + 10).priority == 5

    def test_the_answer_is_the_first_copy_that_was_stored(self, store: QueueStore) -> None:
        _topic(store, "copy", "a", "b")
        store.configure(A, {"maxsize": 1, "overflow": "drop-newest"}, now=NOW)
        publish(store, 1)

        second = answer(store, 2, queue=TOPIC)

        assert second.fate is Fate.STORED
        assert second.message.queue == B
        assert drain(store, queue=A) == [1]
        assert drain(store, queue=B) == [1, 2]

    def test_copies_stay_after_unsubscribing(self, store: QueueStore) -> None:
        _topic(store, "copy", "a", "b")
        publish(store, "x")

        store.unsubscribe(TOPIC, "a", now=NOW)

        assert drain(store, queue=A) == ["x"]


class CursorFanOut(StoreCase):
    """One publication, and a position for every subscriber."""

    @by_cursor
    def test_a_publication_has_the_same_id_for_every_subscriber(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", "b")
        published = publish(store)

        of_a, of_b = lease_one(store, queue=A), lease_one(store, queue=B)

        assert of_a.id == of_b.id == published.id
        assert of_a.token != of_b.token

    @pytest.mark.parametrize(
        ("ordering", "option"),
        [
            ("fifo-ready", {"delay": 5.0}),
            ("priority", {"priority": 1}),
            ("per-key", {"ordering_key": "k"}),
        ],
        ids=["delay", "priority", "ordering key"],
    )
    def test_what_is_not_in_publication_order_is_refused_by_a_cursor(
        self, store: QueueStore, ordering: str, option: dict[str, Any]
    ) -> None:
        _topic(store, "cursor", "a", ordering=ordering)

        with pytest.raises(InvalidMessage):
            publish(store, **option)

        assert store.qsize(A, now=NOW + 60) == 0

    @by_cursor
    def test_a_release_takes_its_place_between_publications(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a")
        publish(store, "first")
        leased = lease_one(store, queue=A)
        publish(store, "at 1", now=NOW + 1)
        release(store, leased, now=NOW + 2)
        publish(store, "at 3", now=NOW + 3)

        delivered = values(lease(store, 9, queue=A, now=NOW + 4))

        assert delivered == ["at 1", "first", "at 3"]

    @by_cursor
    def test_what_a_cursor_had_not_reached_is_let_go_with_the_subscription(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", "b")
        publish(store, "x")

        store.unsubscribe(TOPIC, "a", now=NOW)

        assert lease(store, 9, queue=A) == []
        assert drain(store, queue=B) == ["x"]

    @by_cursor
    def test_a_slow_subscriber_still_gets_everything(self, store: QueueStore, mode: str) -> None:
        _topic(store, mode, "a", "b")
        for batch in range(3):
            put_all(store, range(batch * 100, batch * 100 + 100), queue=TOPIC)
            ack(store, *lease(store, 1000, queue=A))

        assert store.qsize(B, now=NOW) == 300
        assert values(lease(store, 1000, queue=B)) == list(range(300))

    @by_cursor
    def test_a_removing_lease_moves_the_cursor_on(self, store: QueueStore, mode: str) -> None:
        _topic(store, mode, "a", "b")
        put_all(store, range(2), queue=TOPIC)

        taken = lease(store, 1, queue=A, remove=True)

        assert values(taken) == [0]
        assert drain(store, queue=A) == [1]
        assert drain(store, queue=B) == [0, 1]


class HybridFanOut(StoreCase):
    """By cursor, unless a message needs a place of its own."""

    @pytest.mark.parametrize(
        ("ordering", "option"),
        [
            ("fifo-ready", {"delay": 5.0}),
            ("priority", {"priority": 1}),
            ("per-key", {"ordering_key": "k"}),
        ],
        ids=["delay", "priority", "ordering key"],
    )
    def test_what_needs_a_place_of_its_own_is_copied(
        self, store: QueueStore, ordering: str, option: dict[str, Any]
    ) -> None:
        _topic(store, "hybrid", "a", "b", ordering=ordering)
        publish(store, "copied", **option)

        of_a = lease_one(store, queue=A, now=NOW + 5)
        of_b = lease_one(store, queue=B, now=NOW + 5)

        assert of_a.id != of_b.id
        assert (value_of(of_a), value_of(of_b)) == ("copied", "copied")

    def test_copies_and_publications_are_delivered_in_one_order(self, store: QueueStore) -> None:
        _topic(store, "hybrid", "a")
        publish(store, "due at 2", delay=2.0)
        publish(store, "at 1", now=NOW + 1)
        publish(store, "at 3", now=NOW + 3)

        assert drain(store, queue=A, now=NOW + 4) == ["at 1", "due at 2", "at 3"]

    def test_a_priority_overtakes_publications(self, store: QueueStore) -> None:
        _topic(store, "hybrid", "a", ordering="priority")
        publish(store, "plain")
        publish(store, "urgent", priority=1, now=NOW + 1)

        assert drain(store, queue=A, now=NOW + 2) == ["urgent", "plain"]


class LateSubscribers(StoreCase):
    """A subscriber that comes later chooses where it begins."""

    @every_mode
    def test_a_new_subscriber_gets_what_is_published_from_now_on(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a")
        publish(store, "before")

        store.subscribe(TOPIC, "b", now=NOW + 1)
        publish(store, "after", now=NOW + 2)

        assert drain(store, queue=B, now=NOW + 3) == ["after"]
        assert drain(store, queue=A, now=NOW + 3) == ["before", "after"]

    @every_mode
    def test_a_new_subscriber_can_begin_with_the_oldest_kept_publication(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", journal_payloads=True)
        put_all(store, [1, 2], queue=TOPIC)
        drain(store, queue=A)

        store.subscribe(TOPIC, "b", start="earliest", now=NOW + 1)
        publish(store, 3, now=NOW + 2)

        assert store.qsize(B, now=NOW + 3) == 3
        assert drain(store, queue=B, now=NOW + 3) == [1, 2, 3]
        assert drain(store, queue=A, now=NOW + 3) == [3]

    @every_mode
    def test_a_new_subscriber_can_begin_at_a_position(self, store: QueueStore, mode: str) -> None:
        _topic(store, mode, "a", journal_payloads=True)
        publish(store, 1)
        position = store.journal_end()
        publish(store, 2, now=NOW + 1)

        store.subscribe(TOPIC, "b", start=position, now=NOW + 2)
        publish(store, 3, now=NOW + 3)

        assert drain(store, queue=B, now=NOW + 4) == [2, 3]

    @every_mode
    @pytest.mark.parametrize("start", ["earliest", "position"])
    def test_a_start_before_now_needs_kept_payloads(
        self, store: QueueStore, mode: str, start: str
    ) -> None:
        _topic(store, mode, "a")
        position = store.journal_end()

        with pytest.raises(ConfigurationError):
            store.subscribe(TOPIC, "b", start=position if start == "position" else start, now=NOW)

        assert store.subscribers(TOPIC) == ["a"]

    @every_mode
    def test_a_late_subscriber_retries_what_it_read_like_anything_else(
        self, store: QueueStore, mode: str
    ) -> None:
        _topic(store, mode, "a", journal_payloads=True)
        publish(store, "old")
        store.subscribe(TOPIC, "b", start="earliest", now=NOW + 1)

        release(store, lease_one(store, queue=B, now=NOW + 2), error=BOOM, now=NOW + 3)

        again = lease_one(store, queue=B, now=NOW + 4)
        assert (value_of(again), again.attempts, again.failures) == ("old", 2, 1)
        assert dead_letter(store, again, now=NOW + 5) == [True]
        assert values(store.dead_letters(B)) == ["old"]
        assert drain(store, queue=A, now=NOW + 6) == ["old"]

    @every_mode
    def test_a_subscriber_that_comes_back_begins_anew(self, store: QueueStore, mode: str) -> None:
        _topic(store, mode, "a", "b")
        store.unsubscribe(TOPIC, "a", now=NOW)
        publish(store, "missed", now=NOW + 1)

        assert store.subscribe(TOPIC, "a", now=NOW + 2)
        publish(store, "new", now=NOW + 3)

        assert drain(store, queue=A, now=NOW + 4) == ["new"]
