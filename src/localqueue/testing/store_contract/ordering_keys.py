"""Messages of one key are delivered in order and one at a time; keys do not wait for each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from localqueue.outcome import Ack, DeadLetter
from localqueue.stores.protocol import Cancelled, LeaseRequest, QueueStore, Settle
from localqueue.testing.store_contract.phrases import (
    BOOM,
    NOW,
    QUEUE,
    StoreCase,
    ack,
    dead_letter,
    drain,
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
    values,
)


def _keyed(store: QueueStore, **settings: Any) -> None:
    store.configure(QUEUE, {"ordering": "per-key", **settings}, now=NOW)


# --- every way in which the head of a key can leave -------------------------------------------
# Each brings about that the message "head" of the key "k" leaves by NOW + 20, and "next" waits.


def _by_ack(store: QueueStore) -> None:
    ack(store, lease_one(store))


def _by_an_operators_ack(store: QueueStore) -> None:
    ack(store, operator(store.peek(QUEUE, 1, now=NOW)[0]))


def _by_a_removing_lease(store: QueueStore) -> None:
    lease_one(store, remove=True)


def _by_dead_letter(store: QueueStore) -> None:
    dead_letter(store, lease_one(store), error=BOOM)


def _by_dead_letter_while_waiting(store: QueueStore) -> None:
    dead_letter(store, never_leased(store.peek(QUEUE, 1, now=NOW)[0]))


def _by_settlement(store: QueueStore) -> None:
    store.settle(Settle(receipt(lease_one(store)), Ack()), now=NOW)


def _by_a_settlement_as_dead_letter(store: QueueStore) -> None:
    store.settle(Settle(receipt(lease_one(store)), DeadLetter(BOOM)), now=NOW)


def _by_settling_and_leasing(store: QueueStore) -> None:
    settle = Settle(receipt(lease_one(store)), Ack())
    store.settle_and_lease([settle], LeaseRequest(("nothing here",)), now=NOW)


def _by_cancellation(store: QueueStore) -> None:
    head = store.peek(QUEUE, 1, now=NOW)[0]
    assert store.cancel(QUEUE, head.id, now=NOW) is Cancelled.REMOVED


def _by_expiry(store: QueueStore) -> None:
    assert values(lease(store, 1, queue="nothing here", now=NOW + 11)) == []


def _by_expiry_while_leased(store: QueueStore) -> None:
    release(store, lease_one(store), now=NOW + 11)


def _by_the_crash_limit(store: QueueStore) -> None:
    lease_one(store, timeout=5.0, liveness="worker-1")


def _by_dropping_the_oldest(store: QueueStore) -> None:
    put(store, "one too many", now=NOW + 1)


WAYS_TO_LEAVE: list[tuple[str, dict[str, Any], dict[str, Any], Callable[[QueueStore], None]]] = [
    ("acknowledged", {}, {}, _by_ack),
    ("acknowledged by an operator", {}, {}, _by_an_operators_ack),
    ("removed by its lease", {}, {}, _by_a_removing_lease),
    ("dead-lettered", {}, {}, _by_dead_letter),
    ("dead-lettered while it waited", {}, {}, _by_dead_letter_while_waiting),
    ("settled", {}, {}, _by_settlement),
    ("settled as a dead letter", {}, {}, _by_a_settlement_as_dead_letter),
    ("settled with the next lease", {}, {}, _by_settling_and_leasing),
    ("cancelled", {}, {}, _by_cancellation),
    ("expired", {}, {"ttl": 10.0}, _by_expiry),
    ("expired to the dead letters", {"on_expiry": "dead-letter"}, {"ttl": 10.0}, _by_expiry),
    ("expired when released", {}, {"ttl": 10.0}, _by_expiry_while_leased),
    ("one crash too many", {"crash_limit": 1}, {}, _by_the_crash_limit),
    ("dropped", {"maxsize": 2, "overflow": "drop-oldest"}, {}, _by_dropping_the_oldest),
]


class OrderingKeys(StoreCase):
    """The head of a key holds the others until it has left, whichever way."""

    @pytest.mark.parametrize(
        ("settings", "options", "leave"),
        [way[1:] for way in WAYS_TO_LEAVE],
        ids=[way[0] for way in WAYS_TO_LEAVE],
    )
    def test_the_next_of_a_key_follows_however_the_head_left(
        self,
        store: QueueStore,
        settings: dict[str, Any],
        options: dict[str, Any],
        leave: Callable[[QueueStore], None],
    ) -> None:
        _keyed(store, **settings)
        head = put(store, "head", ordering_key="k", **options)
        put(store, "next", ordering_key="k")

        leave(store)

        delivered = lease(store, 9, now=NOW + 20)
        assert values(delivered)[:1] == ["next"]
        left = store.read(QUEUE, head.id)
        assert left is None or left.state == "dead"

    def test_only_the_first_message_of_a_key_is_delivered(self, store: QueueStore) -> None:
        _keyed(store)
        put_all(store, ["a1", "a2", "a3"], ordering_key="a")

        assert values(lease(store, 9)) == ["a1"]
        assert lease(store, 9) == []

    def test_keys_do_not_wait_for_each_other(self, store: QueueStore) -> None:
        _keyed(store)
        put_all(store, ["a1", "a2"], ordering_key="a")
        put_all(store, ["b1", "b2"], ordering_key="b")
        put_all(store, ["free 1", "free 2"])

        assert values(lease(store, 9)) == ["a1", "b1", "free 1", "free 2"]

    def test_messages_of_a_key_are_delivered_in_the_order_of_their_puts(
        self, store: QueueStore
    ) -> None:
        _keyed(store)
        put_all(store, range(20), ordering_key="k")

        assert drain(store) == list(range(20))

    def test_an_ordering_key_belongs_to_its_queue(self, store: QueueStore) -> None:
        _keyed(store)
        store.configure("other", {"ordering": "per-key"}, now=NOW)
        put(store, ordering_key="k")
        put(store, ordering_key="k", queue="other")

        assert len(lease(store, 1)) == 1
        assert len(lease(store, 1, queue="other")) == 1

    def test_a_delayed_head_holds_the_messages_behind_it(self, store: QueueStore) -> None:
        _keyed(store)
        put(store, "head", ordering_key="k", delay=10.0)
        put(store, "next", ordering_key="k")

        assert lease(store, 9, now=NOW + 9) == []
        assert values(lease(store, 9, now=NOW + 10)) == ["head"]

    def test_a_held_message_waits_for_its_own_time_too(self, store: QueueStore) -> None:
        _keyed(store)
        put(store, "head", ordering_key="k")
        put(store, "next", ordering_key="k", delay=10.0)
        ack(store, lease_one(store, now=NOW + 1), now=NOW + 1)

        assert lease(store, 9, now=NOW + 9) == []
        assert values(lease(store, 9, now=NOW + 10)) == ["next"]

    def test_a_held_message_whose_time_came_meanwhile_follows_at_once(
        self, store: QueueStore
    ) -> None:
        _keyed(store)
        put(store, "head", ordering_key="k")
        put(store, "next", ordering_key="k", delay=10.0)
        head = lease_one(store, timeout=1000.0)
        ack(store, head, now=NOW + 20)

        assert values(lease(store, 9, now=NOW + 20)) == ["next"]

    def test_a_released_head_is_delivered_again_before_the_others(self, store: QueueStore) -> None:
        _keyed(store)
        put_all(store, ["head", "next"], ordering_key="k")

        release(store, lease_one(store), delay=10.0, error=BOOM)

        assert lease(store, 9, now=NOW + 9) == []
        assert values(lease(store, 9, now=NOW + 10)) == ["head"]

    def test_a_head_whose_lease_ran_out_is_delivered_again_before_the_others(
        self, store: QueueStore
    ) -> None:
        _keyed(store)
        put_all(store, ["head", "next"], ordering_key="k")
        lease_one(store, timeout=10.0)

        assert values(lease(store, 9, now=NOW + 11)) == ["head"]

    def test_a_promoted_message_goes_behind_what_is_ready(self, store: QueueStore) -> None:
        _keyed(store)
        put_all(store, ["head", "next"], ordering_key="k")
        head = lease_one(store)
        put(store, "free", now=NOW + 1)

        ack(store, head, now=NOW + 2)

        assert values(lease(store, 9, now=NOW + 3)) == ["free", "next"]

    def test_a_dead_letter_does_not_hold_its_key(self, store: QueueStore) -> None:
        _keyed(store)
        put_dead(store, "dead", ordering_key="k")
        put(store, "next", ordering_key="k")

        assert values(lease(store, 9)) == ["next"]

    def test_a_requeued_dead_letter_joins_its_key_at_the_end(self, store: QueueStore) -> None:
        _keyed(store)
        dead = put_dead(store, "dead", ordering_key="k")
        put_all(store, ["second", "third"], ordering_key="k", now=NOW + 1)

        store.requeue_dead_many(QUEUE, [dead.id], now=NOW + 2)
        put(store, "fourth", ordering_key="k", now=NOW + 3)

        assert drain(store, now=NOW + 4) == ["second", "third", "dead", "fourth"]

    def test_a_requeued_dead_letter_whose_key_is_free_is_delivered(self, store: QueueStore) -> None:
        _keyed(store)
        dead = put_dead(store, "dead", ordering_key="k")

        store.requeue_dead_many(QUEUE, [dead.id], now=NOW + 2)
        put(store, "next", ordering_key="k", now=NOW + 3)

        assert values(lease(store, 9, now=NOW + 4)) == ["dead"]

    def test_a_held_message_can_leave_without_disturbing_its_key(self, store: QueueStore) -> None:
        _keyed(store)
        _, second, third, _ = put_all(store, range(4), ordering_key="k")

        assert store.cancel(QUEUE, second.id, now=NOW) is Cancelled.REMOVED
        assert dead_letter(store, never_leased(third)) == [True]

        assert values(lease(store, 9)) == [0]
        assert lease(store, 9) == []
        ack(store, operator(put_all(store, [4], ordering_key="k")[0]))
        assert store.stats(QUEUE, now=NOW).held == 1

    def test_releasing_a_held_message_does_not_let_it_overtake(self, store: QueueStore) -> None:
        _keyed(store)
        put(store, "head", ordering_key="k")
        held = put(store, "held", ordering_key="k")

        release(store, never_leased(held), now=NOW + 1)

        assert values(lease(store, 9, now=NOW + 2)) == ["head"]

    def test_a_held_message_that_expires_is_passed_over(self, store: QueueStore) -> None:
        _keyed(store)
        put(store, "head", ordering_key="k")
        put(store, "short", ordering_key="k", ttl=10.0)
        put(store, "last", ordering_key="k")
        head = lease_one(store, timeout=1000.0)

        ack(store, head, now=NOW + 20)

        assert values(lease(store, 9, now=NOW + 20)) == ["last"]

    def test_a_purged_key_is_free(self, store: QueueStore) -> None:
        _keyed(store)
        put_all(store, ["head", "next"], ordering_key="k")
        lease_one(store)
        store.purge(QUEUE, now=NOW)

        put(store, "new", ordering_key="k", now=NOW + 1)

        assert values(lease(store, 9, now=NOW + 2)) == ["new"]

    def test_held_messages_are_counted_as_delayed_and_as_held(self, store: QueueStore) -> None:
        _keyed(store)
        put_all(store, range(3), ordering_key="k")
        put(store, "later", delay=10.0)

        stats = store.stats(QUEUE, now=NOW)

        assert (stats.ready, stats.delayed, stats.held, stats.total) == (1, 3, 2, 4)
        assert store.qsize(QUEUE, now=NOW) == 1
        assert store.waiting(QUEUE, now=NOW) == 4

    def test_a_held_message_is_ready_for_those_who_look_at_it(self, store: QueueStore) -> None:
        _keyed(store)
        put(store, ordering_key="k")
        held = put(store, ordering_key="k")

        assert held.state == "ready"
        assert read(store, held).state == "ready"
        assert read(store, held).ordering_key == "k"

    def test_keys_hold_after_a_reopening(self, store: QueueStore) -> None:
        _keyed(store)
        put_all(store, ["head", "next"], ordering_key="k")
        head = lease_one(store)

        again = self.reopened(store)

        assert lease(again, 9) == []
        ack(again, head)
        assert values(lease(again, 9)) == ["next"]
