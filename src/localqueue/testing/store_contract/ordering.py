"""Who is delivered next: by priority, then by the moment a message became due, then by its put."""

from __future__ import annotations

from localqueue.stores.protocol import QueueStore
from localqueue.testing.store_contract.phrases import (
    BOOM,
    NOW,
    QUEUE,
    StoreCase,
    dead_letter,
    drain,
    lease,
    lease_one,
    put,
    put_all,
    put_dead,
    release,
    values,
)


class Order(StoreCase):
    """First due, first delivered."""

    def test_a_delayed_message_takes_its_place_by_the_moment_it_became_due(
        self, store: QueueStore
    ) -> None:
        put(store, "due at 5", delay=5.0)
        put(store, "put at 1", now=NOW + 1)
        put(store, "put at 6", now=NOW + 6)

        delivered = values(lease(store, 9, now=NOW + 10))

        assert delivered == ["put at 1", "due at 5", "put at 6"]

    def test_delayed_messages_due_at_the_same_moment_keep_the_order_of_their_puts(
        self, store: QueueStore
    ) -> None:
        put(store, "first", delay=5.0)
        put(store, "second", delay=4.0, now=NOW + 1)

        assert values(lease(store, 9, now=NOW + 10)) == ["first", "second"]

    def test_a_release_takes_its_place_by_the_end_of_its_delay(self, store: QueueStore) -> None:
        put(store, "released")
        release(store, lease_one(store), delay=5.0)
        put(store, "put at 4", now=NOW + 4)
        put(store, "put at 6", now=NOW + 6)

        delivered = values(lease(store, 9, now=NOW + 7))

        assert delivered == ["put at 4", "released", "put at 6"]

    def test_an_ended_lease_goes_behind_what_is_ready_when_that_is_noticed(
        self, store: QueueStore
    ) -> None:
        put(store, "abandoned")
        lease_one(store, timeout=30.0)
        put(store, "put at 25", now=NOW + 25)

        assert values(lease(store, 9, now=NOW + 40)) == ["put at 25", "abandoned"]

    def test_a_requeued_dead_letter_goes_behind_what_is_ready(self, store: QueueStore) -> None:
        dead = put_dead(store, "dead")
        put(store, "put at 1", now=NOW + 1)
        store.requeue_dead_many(QUEUE, [dead.id], now=NOW + 2)
        put(store, "put at 3", now=NOW + 3)

        assert values(lease(store, 9, now=NOW + 4)) == ["put at 1", "dead", "put at 3"]

    def test_however_many_messages_became_due_one_call_finds_them(self, store: QueueStore) -> None:
        put_all(store, range(600), delay=10.0)

        assert store.qsize(QUEUE, now=NOW + 9) == 0
        assert store.qsize(QUEUE, now=NOW + 10) == 600
        assert values(lease(store, 600, now=NOW + 10)) == list(range(600))

    def test_delayed_messages_of_other_queues_are_not_in_the_way(self, store: QueueStore) -> None:
        put_all(store, range(600), queue="other", delay=1.0)
        put(store, "mine", delay=2.0)

        assert values(lease(store, 1, now=NOW + 5)) == ["mine"]
        assert store.qsize("other", now=NOW + 5) == 600

    def test_the_order_survives_a_reopening(self, store: QueueStore) -> None:
        put(store, "due at 2", delay=2.0)
        put_all(store, ["a", "b"], now=NOW + 1)

        again = self.reopened(store)
        put(again, "put at 3", now=NOW + 3)

        assert drain(again, now=NOW + 4) == ["a", "b", "due at 2", "put at 3"]


class Priority(StoreCase):
    """A higher priority that is due overtakes everything lower."""

    def test_equal_priorities_keep_the_order_of_their_puts(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"ordering": "priority"}, now=NOW)
        put_all(store, range(10), priority=3)

        assert values(lease(store, 10)) == list(range(10))

    def test_a_message_shows_its_priority(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"ordering": "priority"}, now=NOW)

        assert put(store, priority=7).priority == 7
        assert lease_one(store).priority == 7

    def test_a_high_priority_before_its_time_does_not_hold_up_the_others(
        self, store: QueueStore
    ) -> None:
        store.configure(QUEUE, {"ordering": "priority"}, now=NOW)
        put(store, "high", priority=9, delay=10.0)
        put_all(store, ["low", "low too"])

        assert values(lease(store, 1, now=NOW + 5)) == ["low"]
        assert values(lease(store, 2, now=NOW + 10)) == ["high", "low too"]

    def test_a_due_high_priority_is_not_overlooked_while_others_are_ready(
        self, store: QueueStore
    ) -> None:
        store.configure(QUEUE, {"ordering": "priority"}, now=NOW)
        put_all(store, range(5))
        put(store, "high", priority=1, delay=1.0)

        assert values(lease(store, 1, now=NOW + 1)) == ["high"]

    def test_a_released_message_keeps_its_priority(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"ordering": "priority"}, now=NOW)
        put(store, "high", priority=2)
        leased = lease_one(store)
        put(store, "low", priority=1)

        release(store, leased, error=BOOM, now=NOW + 5)

        assert values(lease(store, 2, now=NOW + 6)) == ["high", "low"]

    def test_a_requeued_message_keeps_its_priority(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"ordering": "priority"}, now=NOW)
        put(store, "high", priority=2)
        leased = lease_one(store)
        dead_letter(store, leased)
        put(store, "low", priority=1)

        store.requeue_dead_many(QUEUE, [leased.id], now=NOW + 5)

        assert values(lease(store, 2, now=NOW + 6)) == ["high", "low"]

    def test_the_largest_priority_is_understood(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"ordering": "priority"}, now=NOW)
        put(store, "low", priority=2**31 - 2)
        put(store, "high", priority=2**31 - 1)

        assert values(lease(store, 2)) == ["high", "low"]
