"""What every store does, also a custom one that has only the simple verbs."""

from __future__ import annotations

import pytest

from localqueue.errors import InvalidMessage
from localqueue.message import Receipt
from localqueue.outcome import Ack, DeadLetter, Release
from localqueue.stores.protocol import (
    Cancelled,
    Fate,
    LeaseRequest,
    QueueIsFull,
    QueueStore,
    Settle,
    Settled,
)
from localqueue.testing.store_contract.phrases import (
    BOOM,
    NOW,
    QUEUE,
    StoreCase,
    ack,
    answer,
    dead_letter,
    drain,
    is_gone,
    lease,
    lease_one,
    never_leased,
    operator,
    put,
    put_all,
    put_dead,
    read,
    receipt,
    release,
    value_of,
    values,
)


class SimpleDelivery(StoreCase):
    """Put, lease, acknowledge, release."""

    def test_a_put_message_is_ready_and_was_never_delivered(self, store: QueueStore) -> None:
        enqueued = answer(store, {"n": 1})

        assert enqueued.fate is Fate.STORED
        assert enqueued.message.queue == QUEUE
        assert enqueued.message.state == "ready"
        assert enqueued.message.attempts == 0
        assert enqueued.message.available_at == NOW
        assert enqueued.message.leased_until is None
        assert read(store, enqueued.message).id == enqueued.message.id

    @pytest.mark.parametrize(
        "value",
        [None, True, 0, -1.5, "", "häß 🙂", [], {"a": [1, {"b": None}]}, "x" * 100_000],
        ids=["null", "true", "zero", "float", "empty", "unicode", "list", "nested", "large"],
    )
    def test_a_value_comes_back_as_it_was_put(self, store: QueueStore, value: object) -> None:
        put(store, value)

        assert value_of(lease_one(store)) == value

    def test_every_message_has_an_id_of_its_own(self, store: QueueStore) -> None:
        messages = put_all(store, ["same"] * 20)

        assert len({message.id for message in messages}) == 20

    def test_messages_are_delivered_in_the_order_of_their_puts(self, store: QueueStore) -> None:
        for number in range(10):
            put(store, number, now=NOW + number)

        assert values(lease(store, 10, now=NOW + 20)) == list(range(10))

    def test_messages_of_the_same_moment_keep_their_order(self, store: QueueStore) -> None:
        put_all(store, range(20))

        assert drain(store) == list(range(20))

    def test_a_queue_does_not_deliver_what_belongs_to_another(self, store: QueueStore) -> None:
        put(store, "mine", queue="mine")
        put(store, "yours", queue="yours")

        assert values(lease(store, 10, queue="mine")) == ["mine"]
        assert store.qsize("yours", now=NOW) == 1

    def test_a_queue_that_was_never_used_is_empty(self, store: QueueStore) -> None:
        assert lease(store, 5, queue="nowhere") == []
        assert store.qsize("nowhere", now=NOW) == 0
        assert store.stats("nowhere", now=NOW).total == 0
        assert store.dead_letters("nowhere") == []
        assert store.read("nowhere", "0" * 32) is None
        assert store.purge("nowhere", now=NOW) == 0

    def test_a_lease_names_its_deadline_its_worker_and_the_attempt(self, store: QueueStore) -> None:
        put(store)

        leased = lease_one(store, now=NOW + 5, timeout=40.0, worker="w1")

        assert leased.state == "inflight"
        assert leased.attempts == 1
        assert leased.leased_until == NOW + 45
        assert leased.leased_by == "w1"
        assert leased.token is not None
        assert leased.token > 0
        assert read(store, leased).state == "inflight"

    def test_a_leased_message_is_not_leased_again_before_its_deadline(
        self, store: QueueStore
    ) -> None:
        put(store)
        lease_one(store, timeout=30.0)

        assert lease(store, 1, now=NOW + 29) == []

    def test_a_lease_that_ran_out_is_given_to_the_next_worker(self, store: QueueStore) -> None:
        message = put(store)
        lease_one(store, timeout=30.0, worker="w1")

        again = lease_one(store, now=NOW + 31, worker="w2")

        assert again.id == message.id
        assert again.attempts == 2
        assert again.leased_by == "w2"

    def test_a_lease_takes_no_more_than_its_limit(self, store: QueueStore) -> None:
        put_all(store, range(5))

        assert values(lease(store, 3)) == [0, 1, 2]
        assert values(lease(store, 3)) == [3, 4]
        assert lease(store, 3) == []

    def test_a_lease_over_several_queues_begins_with_the_first(self, store: QueueStore) -> None:
        put_all(store, ["b1", "b2"], queue="b")
        put_all(store, ["a1", "a2"], queue="a", now=NOW + 1)

        assert values(lease(store, 3, queue=("a", "b"), now=NOW + 2)) == ["a1", "a2", "b1"]

    def test_a_removing_lease_hands_the_message_over_for_good(self, store: QueueStore) -> None:
        put(store)

        taken = lease_one(store, remove=True)

        assert taken.state == "inflight"
        assert taken.attempts == 1
        assert is_gone(store, taken)
        assert lease(store, 1, now=NOW + 1000) == []

    def test_a_delayed_message_is_not_delivered_before_its_time(self, store: QueueStore) -> None:
        message = put(store, delay=10.0)

        assert message.state == "ready"
        assert message.available_at == NOW + 10
        assert lease(store, 1, now=NOW + 9.5) == []
        assert lease_one(store, now=NOW + 10).id == message.id

    def test_an_acknowledged_message_is_gone(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store)

        assert ack(store, leased) == [True]
        assert is_gone(store, leased)
        assert lease(store, 1, now=NOW + 1000) == []

    def test_acknowledging_answers_one_by_one(self, store: QueueStore) -> None:
        put_all(store, range(2))
        first, second = lease(store, 2)
        unknown = Receipt(QUEUE, "0" * 32, 1)

        answers = store.ack_many([receipt(first), unknown, receipt(second)], now=NOW)

        assert answers == [True, False, True]

    def test_a_message_cannot_be_acknowledged_twice(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store)
        ack(store, leased)

        assert ack(store, leased) == [False]

    def test_a_released_message_is_delivered_again_as_another_attempt(
        self, store: QueueStore
    ) -> None:
        put(store)
        leased = lease_one(store, worker="w1")

        assert release(store, leased) == [True]

        waiting = read(store, leased)
        assert (waiting.state, waiting.attempts) == ("ready", 1)
        assert (waiting.leased_by, waiting.leased_until) == (None, None)
        assert lease_one(store).attempts == 2

    def test_a_message_released_with_a_delay_waits_for_it(self, store: QueueStore) -> None:
        put(store)
        release(store, lease_one(store), delay=60.0, now=NOW + 1)

        assert lease(store, 1, now=NOW + 60) == []
        assert lease_one(store, now=NOW + 61).attempts == 2

    def test_a_released_message_goes_behind_what_is_ready(self, store: QueueStore) -> None:
        put(store, "first")
        leased = lease_one(store)
        put(store, "second", now=NOW + 1)

        release(store, leased, now=NOW + 2)

        assert values(lease(store, 2, now=NOW + 3)) == ["second", "first"]

    def test_a_release_with_an_error_keeps_it_on_the_message(self, store: QueueStore) -> None:
        put(store)

        release(store, lease_one(store), error=BOOM, now=NOW + 3)

        again = lease_one(store, now=NOW + 4)
        assert again.last_error == BOOM
        assert again.failed_at == NOW + 3

    def test_a_release_without_an_error_leaves_the_last_one_standing(
        self, store: QueueStore
    ) -> None:
        put(store)
        release(store, lease_one(store), error=BOOM, now=NOW + 1)

        release(store, lease_one(store, now=NOW + 2), now=NOW + 3)

        waiting = lease_one(store, now=NOW + 4)
        assert waiting.last_error == BOOM
        assert waiting.failed_at == NOW + 1

    def test_a_waiting_message_can_be_cancelled(self, store: QueueStore) -> None:
        message = put(store)

        assert store.cancel(QUEUE, message.id, now=NOW) is Cancelled.REMOVED
        assert is_gone(store, message)
        assert lease(store, 1) == []

    def test_cancelling_what_is_not_there_says_so(self, store: QueueStore) -> None:
        dead = put_dead(store)

        assert store.cancel(QUEUE, "0" * 32, now=NOW) is Cancelled.UNKNOWN
        assert store.cancel(QUEUE, dead.id, now=NOW) is Cancelled.UNKNOWN
        assert read(store, dead).state == "dead"

    def test_a_paused_queue_stores_but_delivers_nothing(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"paused": True}, now=NOW)
        put(store)

        assert lease(store, 1) == []
        store.configure(QUEUE, {"paused": False}, now=NOW)
        assert len(lease(store, 1)) == 1

    def test_a_running_message_of_a_paused_queue_is_settled_as_ever(
        self, store: QueueStore
    ) -> None:
        put(store)
        leased = lease_one(store)
        store.configure(QUEUE, {"paused": True}, now=NOW)

        assert ack(store, leased) == [True]

    def test_a_moment_may_be_given_as_a_function_of_the_store(self, store: QueueStore) -> None:
        put(store, delay=10.0)

        request = LeaseRequest((QUEUE,))

        assert store.lease(request, now=lambda: NOW + 9) == []
        assert store.qsize(QUEUE, now=lambda: NOW + 10) == 1
        assert len(store.lease(request, now=lambda: NOW + 10)) == 1


class SimpleReceipts(StoreCase):
    """Who may settle a message."""

    def test_a_stale_receipt_cannot_acknowledge_the_new_owners_message(
        self, store: QueueStore
    ) -> None:
        put(store)
        old = lease_one(store, timeout=30.0)
        new = lease_one(store, now=NOW + 31)

        assert ack(store, old, now=NOW + 32) == [False]
        assert read(store, new).state == "inflight"
        assert ack(store, new, now=NOW + 33) == [True]

    def test_a_stale_receipt_cannot_release_the_new_owners_message(self, store: QueueStore) -> None:
        put(store)
        old = lease_one(store, timeout=30.0)
        new = lease_one(store, now=NOW + 31)

        assert release(store, old, error=BOOM, now=NOW + 32) == [False]
        assert read(store, new).state == "inflight"
        assert read(store, new).last_error is None

    def test_a_stale_receipt_cannot_dead_letter_the_new_owners_message(
        self, store: QueueStore
    ) -> None:
        put(store)
        old = lease_one(store, timeout=30.0)
        new = lease_one(store, now=NOW + 31)

        assert dead_letter(store, old, error=BOOM, now=NOW + 32) == [False]
        assert read(store, new).state == "inflight"
        assert store.dead_letters(QUEUE) == []

    def test_a_receipt_ends_with_its_release(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store)
        release(store, leased)

        assert ack(store, leased) == [False]
        assert release(store, leased) == [False]
        assert dead_letter(store, leased) == [False]
        assert read(store, leased).state == "ready"

    def test_what_put_returned_may_be_acknowledged_while_nobody_holds_it(
        self, store: QueueStore
    ) -> None:
        message = put(store)

        assert ack(store, message) == [True]
        assert is_gone(store, message)

    def test_what_put_returned_may_not_touch_a_lease(self, store: QueueStore) -> None:
        message = put(store)
        leased = lease_one(store)

        assert ack(store, message) == [False]
        assert release(store, message) == [False]
        assert dead_letter(store, message) == [False]
        assert ack(store, leased) == [True]

    def test_an_operator_acts_on_the_current_lease_and_makes_its_receipt_stale(
        self, store: QueueStore
    ) -> None:
        put(store)
        leased = lease_one(store)

        assert release(store, operator(leased)) == [True]
        assert ack(store, leased) == [False]
        assert read(store, leased).state == "ready"

    def test_an_operator_may_acknowledge_what_waits_and_what_is_dead(
        self, store: QueueStore
    ) -> None:
        waiting = put(store)
        dead = put_dead(store)

        assert ack(store, operator(waiting), operator(dead)) == [True, True]
        assert is_gone(store, waiting)
        assert is_gone(store, dead)

    def test_a_lease_is_ended_by_its_settlement(self, store: QueueStore) -> None:
        put_all(store, range(3))
        first, second, third = lease(store, 3)

        assert store.settle(Settle(receipt(first), Ack()), now=NOW) is Settled.DONE
        assert store.settle(Settle(receipt(second), Release(5.0, BOOM)), now=NOW) is Settled.DONE
        assert store.settle(Settle(receipt(third), DeadLetter(BOOM)), now=NOW) is Settled.DONE

        assert is_gone(store, first)
        assert read(store, second).state == "ready"
        assert read(store, second).available_at == NOW + 5
        assert read(store, second).last_error == BOOM
        assert read(store, third).state == "dead"
        assert read(store, third).last_error == BOOM

    def test_a_stale_receipt_settles_nothing(self, store: QueueStore) -> None:
        put(store)
        old = lease_one(store, timeout=30.0)
        new = lease_one(store, now=NOW + 31)

        settled = store.settle(Settle(receipt(old), Ack()), now=NOW + 32)

        assert settled is Settled.STALE
        assert read(store, new).state == "inflight"

    def test_settling_and_leasing_go_together(self, store: QueueStore) -> None:
        put_all(store, ["a", "b", "c"])
        first = lease_one(store)
        stale = Receipt(QUEUE, first.id, first.token + 1000)

        settled, leased = store.settle_and_lease(
            [Settle(stale, Ack()), Settle(receipt(first), Ack())],
            LeaseRequest((QUEUE,), 2),
            now=NOW + 1,
        )

        assert settled == [Settled.STALE, Settled.DONE]
        assert values(leased) == ["b", "c"]
        assert is_gone(store, first)


class SimpleDeadLetters(StoreCase):
    """Taking a message out of delivery, and bringing it back."""

    def test_a_dead_letter_is_kept_but_not_delivered(self, store: QueueStore) -> None:
        put(store, "poison")
        leased = lease_one(store)

        assert dead_letter(store, leased, error=BOOM, now=NOW + 2) == [True]

        assert lease(store, 1, now=NOW + 1000) == []
        [dead] = store.dead_letters(QUEUE)
        assert (dead.id, dead.state, dead.attempts) == (leased.id, "dead", 1)
        assert (dead.last_error, dead.failed_at) == (BOOM, NOW + 2)
        assert value_of(dead) == "poison"

    def test_a_waiting_message_can_become_a_dead_letter(self, store: QueueStore) -> None:
        message = put(store)

        assert dead_letter(store, never_leased(message)) == [True]
        assert [dead.id for dead in store.dead_letters(QUEUE)] == [message.id]

    def test_a_dead_letter_cannot_be_released(self, store: QueueStore) -> None:
        dead = put_dead(store)

        assert release(store, operator(dead)) == [False]
        assert read(store, dead).state == "dead"

    def test_dead_letters_are_listed_oldest_first(self, store: QueueStore) -> None:
        put_all(store, ["a", "b", "c"])
        a, b, c = lease(store, 3)
        dead_letter(store, c, error=BOOM, now=NOW + 1)
        dead_letter(store, a, error=BOOM, now=NOW + 2)
        dead_letter(store, b, error=BOOM, now=NOW + 3)

        assert values(store.dead_letters(QUEUE)) == ["c", "a", "b"]
        assert values(store.dead_letters(QUEUE, limit=2)) == ["c", "a"]
        assert store.dead_letters(QUEUE, limit=0) == []

    def test_the_ids_of_dead_letters_are_those_of_the_list_in_its_order(
        self, store: QueueStore
    ) -> None:
        put_all(store, ["a", "b", "c", "waiting"])
        a, b, c = lease(store, 3)
        dead_letter(store, c, error=BOOM, now=NOW + 1)
        dead_letter(store, a, error=BOOM, now=NOW + 2)
        dead_letter(store, b, error=BOOM, now=NOW + 3)
        put_dead(store, queue="other")

        assert store.dead_letter_ids(QUEUE) == [c.id, a.id, b.id]
        assert store.dead_letter_ids(QUEUE, limit=2) == [c.id, a.id]
        assert store.dead_letter_ids(QUEUE, limit=0) == []
        assert store.dead_letter_ids("nowhere") == []

    def test_a_requeued_dead_letter_is_delivered_again(self, store: QueueStore) -> None:
        dead = put_dead(store, error=BOOM)

        assert store.requeue_dead_many(QUEUE, [dead.id], now=NOW + 5) == [True]

        again = lease_one(store, now=NOW + 6)
        assert again.id == dead.id
        assert again.last_error == BOOM
        assert store.dead_letters(QUEUE) == []

    def test_a_dead_letter_can_be_requeued_with_a_delay(self, store: QueueStore) -> None:
        dead = put_dead(store)

        store.requeue_dead_many(QUEUE, [dead.id], delay=10.0, now=NOW)

        assert lease(store, 1, now=NOW + 9) == []
        assert len(lease(store, 1, now=NOW + 10)) == 1

    def test_only_dead_letters_can_be_requeued(self, store: QueueStore) -> None:
        waiting = put(store)
        dead = put_dead(store)

        answers = store.requeue_dead_many(QUEUE, [waiting.id, dead.id, "0" * 32], now=NOW)

        assert answers == [False, True, False]

    def test_old_dead_letters_are_counted_and_pruned(self, store: QueueStore) -> None:
        old = put_dead(store, error=BOOM, now=NOW)
        recent = put_dead(store, error=BOOM, now=NOW + 100)

        assert store.count_dead_letters_older_than(QUEUE, older_than=60, now=NOW + 110) == 1
        assert store.prune_dead_letters(QUEUE, older_than=60, now=NOW + 110) == 1

        assert is_gone(store, old)
        assert read(store, recent).state == "dead"
        assert store.count_dead_letters_older_than(QUEUE, older_than=60, now=NOW + 110) == 0

    def test_a_dead_letter_exactly_that_old_is_pruned(self, store: QueueStore) -> None:
        put_dead(store, error=BOOM, now=NOW)

        assert store.prune_dead_letters(QUEUE, older_than=60, now=NOW + 59) == 0
        assert store.prune_dead_letters(QUEUE, older_than=60, now=NOW + 60) == 1

    def test_pruning_leaves_messages_that_are_not_dead(self, store: QueueStore) -> None:
        put_all(store, ["a", "b"])
        lease_one(store, timeout=1000.0)

        assert store.prune_dead_letters(QUEUE, older_than=0, now=NOW + 100) == 0
        assert store.stats(QUEUE, now=NOW + 100).total == 2


class SimpleCounting(StoreCase):
    """Counts, and what takes everything out."""

    def test_the_size_of_a_queue_is_what_could_be_leased_now(self, store: QueueStore) -> None:
        put_all(store, range(3))
        put(store, delay=10.0)
        lease_one(store, timeout=1000.0)
        put_dead(store)

        assert store.qsize(QUEUE, now=NOW) == 2
        assert store.qsize(QUEUE, now=NOW + 10) == 3

    def test_stats_count_every_state(self, store: QueueStore) -> None:
        put_all(store, range(4))
        put_all(store, range(2), delay=10.0)
        lease(store, 2, worker="w1", timeout=1000.0)
        lease(store, 1, worker="w2", timeout=1000.0)
        put_dead(store)

        stats = store.stats(QUEUE, now=NOW + 1)

        assert (stats.ready, stats.delayed, stats.inflight, stats.dead) == (1, 2, 3, 1)
        assert stats.total == 7
        assert stats.by_worker_id == {"w1": 2, "w2": 1}

    def test_waiting_counts_delayed_messages_but_neither_leased_nor_dead_ones(
        self, store: QueueStore
    ) -> None:
        put_all(store, range(3))
        put(store, delay=10.0)
        lease_one(store)
        put_dead(store)

        assert store.waiting(QUEUE, now=NOW) == 3

    def test_a_workers_heartbeat_is_seen_in_the_stats(self, store: QueueStore) -> None:
        put(store)

        store.record_worker_heartbeat(QUEUE, "w1", now=NOW + 7)

        assert store.stats(QUEUE, now=NOW + 8).last_seen_by_worker_id == {"w1": NOW + 7}

    def test_purging_removes_messages_of_every_state_and_says_how_many(
        self, store: QueueStore
    ) -> None:
        put_all(store, range(2))
        put(store, delay=10.0)
        lease_one(store)
        put_dead(store)
        put(store, queue="other")

        assert store.purge(QUEUE, now=NOW) == 4

        assert store.stats(QUEUE, now=NOW).total == 0
        assert lease(store, 1, now=NOW + 1000) == []
        assert store.dead_letters(QUEUE) == []
        assert store.qsize("other", now=NOW) == 1

    def test_a_purged_lease_can_no_longer_be_settled(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store)
        store.purge(QUEUE, now=NOW)

        assert ack(store, leased) == [False]


class SimplePromises(StoreCase):
    """Priority, deduplication and capacity, as far as a single process sees them."""

    def test_a_higher_priority_overtakes_messages_that_arrived_earlier(
        self, store: QueueStore
    ) -> None:
        store.configure(QUEUE, {"ordering": "priority"}, now=NOW)
        put(store, "low", priority=1, now=NOW)
        put(store, "none", now=NOW + 1)
        put(store, "high", priority=9, now=NOW + 2)
        put(store, "low too", priority=1, now=NOW + 3)

        assert values(lease(store, 4, now=NOW + 4)) == ["high", "low", "low too", "none"]

    def test_a_priority_is_refused_where_the_queue_does_not_order_by_it(
        self, store: QueueStore
    ) -> None:
        with pytest.raises(InvalidMessage):
            put(store, priority=1)

        assert store.stats(QUEUE, now=NOW).total == 0

    def test_a_second_put_of_a_key_answers_with_the_first_message(self, store: QueueStore) -> None:
        first = put(store, "first", dedupe_key="k")

        second = answer(store, "second", dedupe_key="k", now=NOW + 1)

        assert second.fate is Fate.DUPLICATE
        assert second.message.id == first.id
        assert value_of(second.message) == "first"
        assert store.stats(QUEUE, now=NOW + 1).total == 1

    def test_a_key_is_taken_while_its_message_is_leased_or_dead(self, store: QueueStore) -> None:
        put(store, dedupe_key="k")
        leased = lease_one(store)

        assert answer(store, dedupe_key="k", now=NOW + 1).fate is Fate.DUPLICATE
        dead_letter(store, leased, now=NOW + 2)
        assert answer(store, dedupe_key="k", now=NOW + 3).fate is Fate.DUPLICATE

    def test_a_key_is_free_again_once_its_message_is_acknowledged(self, store: QueueStore) -> None:
        first = put(store, dedupe_key="k")
        ack(store, lease_one(store))

        second = answer(store, dedupe_key="k", now=NOW + 1)

        assert second.fate is Fate.STORED
        assert second.message.id != first.id

    @pytest.mark.parametrize("overflow", ["block", "reject"])
    def test_a_full_queue_refuses_the_next_message(self, store: QueueStore, overflow: str) -> None:
        store.configure(QUEUE, {"maxsize": 2, "overflow": overflow}, now=NOW)
        put_all(store, ["a", "b"])

        with pytest.raises(QueueIsFull) as full:
            put(store, "c")

        assert (full.value.queue, full.value.overflow) == (QUEUE, overflow)
        assert store.waiting(QUEUE, now=NOW) == 2

    def test_a_leased_message_makes_room_in_a_full_queue(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"maxsize": 1, "overflow": "reject"}, now=NOW)
        put(store, "a")
        lease_one(store)

        put(store, "b")

        with pytest.raises(QueueIsFull):
            put(store, "c")

    def test_a_throttled_queue_stores_and_asks_for_a_pause(self, store: QueueStore) -> None:
        settings = {"maxsize": 2, "overflow": "throttle", "throttle_delay": 0.5}
        store.configure(QUEUE, settings, now=NOW)

        delays = [answer(store, number).delay for number in range(4)]

        assert delays == [0.0, 0.0, 0.25, 0.5]
        assert store.waiting(QUEUE, now=NOW) == 4

    def test_a_queue_that_drops_the_newest_does_not_store_it(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"maxsize": 1, "overflow": "drop-newest"}, now=NOW)
        put(store, "kept")

        dropped = answer(store, "dropped")

        assert dropped.fate is Fate.DROPPED
        assert drain(store) == ["kept"]

    def test_settings_in_force_are_shown_with_their_version(self, store: QueueStore) -> None:
        written, version = store.configure(QUEUE, {"maxsize": 7}, now=NOW)

        assert written.maxsize == 7
        assert store.settings(QUEUE) == (written, version)
        assert store.settings("never used") is None


class SimpleStoreContract(
    SimpleDelivery, SimpleReceipts, SimpleDeadLetters, SimpleCounting, SimplePromises
):
    """The part that a custom store with only the simple verbs passes, wrapped in MinimalStore."""
