"""How much a queue takes, and what happens to what does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from localqueue.stores.protocol import Fate, QueueIsFull, QueueStore
from localqueue.testing.store_contract.phrases import (
    NOW,
    QUEUE,
    StoreCase,
    ack,
    answer,
    drain,
    is_gone,
    lease,
    lease_one,
    new_put,
    put,
    put_all,
    put_dead,
    release,
    value_of,
    values,
)


def _bounded(store: QueueStore, maxsize: int, overflow: str = "reject", **more: Any) -> None:
    store.configure(QUEUE, {"maxsize": maxsize, "overflow": overflow, **more}, now=NOW)


class Capacity(StoreCase):
    """The bound is exact, and counts what waits."""

    def test_exactly_as_many_messages_fit_as_the_bound_says(self, store: QueueStore) -> None:
        _bounded(store, 3)

        for number in range(3):
            put(store, number)
        with pytest.raises(QueueIsFull):
            put(store, 3)

        assert store.waiting(QUEUE, now=NOW) == 3

    @pytest.mark.parametrize("overflow", ["block", "reject"])
    def test_a_batch_that_does_not_fit_is_refused_as_a_whole(
        self, store: QueueStore, overflow: str
    ) -> None:
        _bounded(store, 3, overflow)
        put(store, "there")

        with pytest.raises(QueueIsFull) as full:
            put_all(store, range(3))

        assert (full.value.queue, full.value.overflow) == (QUEUE, overflow)
        assert drain(store) == ["there"]

    def test_a_full_queue_refuses_the_batch_for_all_its_queues(self, store: QueueStore) -> None:
        _bounded(store, 1)
        put(store)

        with pytest.raises(QueueIsFull):
            store.enqueue_many([new_put(queue="roomy"), new_put()], now=NOW)

        assert store.qsize("roomy", now=NOW) == 0

    def test_delayed_messages_take_room(self, store: QueueStore) -> None:
        _bounded(store, 1)
        put(store, delay=60.0)

        with pytest.raises(QueueIsFull):
            put(store)

    def test_held_messages_take_room(self, store: QueueStore) -> None:
        _bounded(store, 2, ordering="per-key")
        put_all(store, range(2), ordering_key="k")

        with pytest.raises(QueueIsFull):
            put(store)

    def test_leased_and_dead_messages_take_no_room(self, store: QueueStore) -> None:
        _bounded(store, 1)
        put_dead(store, "dead")
        put(store, "leased")
        lease_one(store)

        put(store, "fits")

        assert store.waiting(QUEUE, now=NOW) == 1

    def test_an_expired_message_takes_no_room(self, store: QueueStore) -> None:
        _bounded(store, 1)
        put(store, "expired", ttl=10.0)

        assert store.waiting(QUEUE, now=NOW + 9) == 1
        assert store.waiting(QUEUE, now=NOW + 11) == 0
        put(store, "fits", now=NOW + 11)

        assert drain(store, now=NOW + 12) == ["fits"]

    def test_a_message_comes_back_even_into_a_full_queue(self, store: QueueStore) -> None:
        _bounded(store, 1)
        dead = put_dead(store, "dead")
        put(store, "first")
        leased = lease_one(store)
        put(store, "second")

        assert release(store, leased, now=NOW + 1) == [True]
        assert store.requeue_dead_many(QUEUE, [dead.id], now=NOW + 1) == [True]

        assert store.waiting(QUEUE, now=NOW) == 3
        with pytest.raises(QueueIsFull):
            put(store, "third", now=NOW + 2)

    def test_an_acknowledged_waiting_message_makes_room(self, store: QueueStore) -> None:
        _bounded(store, 1)
        ack(store, put(store, "first"))

        put(store, "second")

        assert drain(store) == ["second"]

    def test_a_duplicate_needs_no_room(self, store: QueueStore) -> None:
        _bounded(store, 1)
        first = put(store, dedupe_key="k")

        again = answer(store, dedupe_key="k")

        assert again.fate is Fate.DUPLICATE
        assert again.message.id == first.id

    def test_a_raised_bound_makes_room(self, store: QueueStore) -> None:
        _bounded(store, 1)
        put(store, "first")
        _bounded(store, 2)

        put(store, "second")

        assert store.waiting(QUEUE, now=NOW) == 2

    def test_a_bound_below_what_waits_refuses_until_there_is_room(self, store: QueueStore) -> None:
        put_all(store, range(3))
        _bounded(store, 2)
        lease(store, 1)

        with pytest.raises(QueueIsFull):
            put(store)
        lease(store, 1)
        put(store, "fits")

        assert store.waiting(QUEUE, now=NOW) == 2

    def test_a_bound_of_zero_is_no_bound(self, store: QueueStore) -> None:
        _bounded(store, 0)

        put_all(store, range(100))

        assert store.waiting(QUEUE, now=NOW) == 100

    def test_the_bound_holds_after_a_reopening(self, store: QueueStore) -> None:
        _bounded(store, 2)
        put(store)

        again = self.reopened(store)
        put(again)

        with pytest.raises(QueueIsFull):
            put(again)


class Overflow(StoreCase):
    """Each kind loses, or keeps, what it says."""

    def test_dropping_the_newest_stores_what_fits_of_a_batch(self, store: QueueStore) -> None:
        _bounded(store, 2, "drop-newest")

        answers = store.enqueue_many([new_put(number) for number in range(4)], now=NOW)

        fates = [enqueued.fate for enqueued in answers]
        assert fates == [Fate.STORED, Fate.STORED, Fate.DROPPED, Fate.DROPPED]
        assert value_of(answers[3].message) == 3
        assert is_gone(store, answers[3].message)
        assert drain(store) == [0, 1]

    def test_a_dropped_message_does_not_take_its_dedupe_key(self, store: QueueStore) -> None:
        _bounded(store, 1, "drop-newest")
        put(store, "first")
        dropped = answer(store, "second", dedupe_key="k")
        drain(store)

        again = answer(store, "second", dedupe_key="k")

        assert (dropped.fate, again.fate) == (Fate.DROPPED, Fate.STORED)

    def test_dropping_the_oldest_makes_room_for_the_newest(self, store: QueueStore) -> None:
        _bounded(store, 2, "drop-oldest")

        answers = store.enqueue_many([new_put(number) for number in range(4)], now=NOW)

        assert {enqueued.fate for enqueued in answers} == {Fate.STORED}
        assert drain(store) == [2, 3]

    def test_dropping_the_oldest_takes_the_lowest_priority_first(self, store: QueueStore) -> None:
        _bounded(store, 3, "drop-oldest", ordering="priority")
        put(store, "important", priority=5)
        put(store, "old", now=NOW + 1)
        put(store, "new", now=NOW + 2)

        put(store, "urgent", priority=9, now=NOW + 3)

        assert values(lease(store, 9, now=NOW + 4)) == ["urgent", "important", "new"]

    def test_dropping_the_oldest_takes_nothing_that_is_not_ready(self, store: QueueStore) -> None:
        _bounded(store, 2, "drop-oldest")
        put_all(store, ["later", "later too"], delay=60.0)

        with pytest.raises(QueueIsFull):
            put(store, "now")

        assert store.waiting(QUEUE, now=NOW) == 2

    def test_dropping_the_oldest_frees_its_dedupe_key(self, store: QueueStore) -> None:
        _bounded(store, 1, "drop-oldest")
        put(store, "first", dedupe_key="k")
        put(store, "second")

        assert answer(store, "third", dedupe_key="k").fate is Fate.STORED

    def test_throttling_stores_everything_and_asks_for_longer_pauses(
        self, store: QueueStore
    ) -> None:
        _bounded(store, 4, "throttle", throttle_delay=1.0)

        delays = [answer(store, number).delay for number in range(10)]

        assert delays == [0.0, 0.0, 0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
        assert store.waiting(QUEUE, now=NOW) == 10

    def test_what_does_not_fit_goes_to_the_queue_that_takes_it(self, store: QueueStore) -> None:
        _bounded(store, 1, "overflow", overflow_to="spare")
        put(store, "fits")

        moved = answer(store, "does not")

        assert moved.fate is Fate.STORED
        assert moved.message.queue == "spare"
        assert drain(store) == ["fits"]
        assert drain(store, queue="spare") == ["does not"]

    def test_the_queue_that_takes_it_has_a_bound_of_its_own(self, store: QueueStore) -> None:
        _bounded(store, 1, "overflow", overflow_to="spare")
        store.configure("spare", {"maxsize": 1, "overflow": "reject"}, now=NOW)
        put_all(store, ["here", "there"])

        with pytest.raises(QueueIsFull):
            put(store, "nowhere")

        assert (store.waiting(QUEUE, now=NOW), store.waiting("spare", now=NOW)) == (1, 1)

    def test_overflow_goes_on_from_queue_to_queue(self, store: QueueStore) -> None:
        _bounded(store, 1, "overflow", overflow_to="second")
        settings = {"maxsize": 1, "overflow": "overflow", "overflow_to": "third"}
        store.configure("second", settings, now=NOW)

        queues = [put(store, number).queue for number in range(4)]

        assert queues == [QUEUE, "second", "third", "third"]

    def test_overflow_that_runs_in_a_circle_ends_in_a_full_queue(self, store: QueueStore) -> None:
        for here, there in (("a", "b"), ("b", "a")):
            settings = {"maxsize": 1, "overflow": "overflow", "overflow_to": there}
            store.configure(here, settings, now=NOW)
        put_all(store, ["a", "b"], queue="a")

        with pytest.raises(QueueIsFull):
            put(store, "c", queue="a")

        assert (store.waiting("a", now=NOW), store.waiting("b", now=NOW)) == (1, 1)

    def test_what_does_not_fit_can_become_a_dead_letter(self, store: QueueStore) -> None:
        _bounded(store, 1, "overflow")
        put(store, "fits")

        buried = answer(store, "does not", now=NOW + 1)

        assert buried.fate is Fate.STORED
        assert buried.message.state == "dead"
        [dead] = store.dead_letters(QUEUE)
        assert dead.id == buried.message.id
        assert (dead.last_error or {})["type"] == "QueueFull"
        assert dead.failed_at == NOW + 1
        assert drain(store) == ["fits"]

    def test_a_dead_letter_of_a_full_queue_can_be_requeued(self, store: QueueStore) -> None:
        _bounded(store, 1, "overflow")
        put(store, "fits")
        buried = put(store, "does not")
        drain(store)

        assert store.requeue_dead_many(QUEUE, [buried.id], now=NOW + 5) == [True]
        assert drain(store, now=NOW + 6) == ["does not"]
