"""How long a message may wait, and how often its worker may die."""

from __future__ import annotations

import pytest

from localqueue.stores.protocol import Fate, QueueStore
from localqueue.testing.store_contract.phrases import (
    BOOM,
    NOW,
    QUEUE,
    StoreCase,
    ack,
    answer,
    drain,
    is_gone,
    lease,
    lease_one,
    put,
    put_all,
    put_dead,
    read,
    receipt,
    release,
    values,
)


class Expiry(StoreCase):
    """A message whose time to live is over is not delivered any more."""

    @pytest.mark.parametrize("delay", [0.0, 60.0], ids=["ready", "delayed"])
    def test_an_expired_message_is_gone(self, store: QueueStore, delay: float) -> None:
        message = put(store, ttl=30.0, delay=delay)
        put(store, "other", now=NOW + 1)

        assert values(lease(store, 9, now=NOW + 100)) == ["other"]
        assert is_gone(store, message)

    def test_a_message_is_delivered_before_it_expires(self, store: QueueStore) -> None:
        message = put(store, ttl=30.0)

        assert message.expires_at == NOW + 30
        assert lease_one(store, now=NOW + 29).expires_at == NOW + 30

    def test_an_expired_message_can_become_a_dead_letter(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"on_expiry": "dead-letter"}, now=NOW)
        message = put(store, ttl=30.0)

        assert lease(store, 9, now=NOW + 31) == []

        [dead] = store.dead_letters(QUEUE)
        assert dead.id == message.id
        assert (dead.last_error or {})["type"] == "MessageExpired"
        assert dead.attempts == 0

    def test_a_queue_gives_its_messages_a_time_to_live(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"ttl": 30.0}, now=NOW)
        put(store, "of the queue")
        put(store, "its own", ttl=90.0)

        assert values(lease(store, 9, now=NOW + 60)) == ["its own"]

    def test_a_changed_time_to_live_counts_for_later_puts(self, store: QueueStore) -> None:
        put(store, "before")
        store.configure(QUEUE, {"ttl": 30.0}, now=NOW)
        put(store, "after")

        assert values(lease(store, 9, now=NOW + 60)) == ["before"]

    def test_an_expired_message_is_not_counted(self, store: QueueStore) -> None:
        put(store, ttl=30.0)
        put(store, ttl=30.0, delay=60.0)
        put(store)

        stats = store.stats(QUEUE, now=NOW + 31)

        assert store.qsize(QUEUE, now=NOW + 31) == 1
        assert (stats.ready, stats.delayed, stats.total) == (1, 0, 1)

    def test_a_running_message_may_be_acknowledged_past_its_expiry(self, store: QueueStore) -> None:
        put(store, ttl=30.0)
        leased = lease_one(store, timeout=1000.0)

        lease(store, 9, now=NOW + 60)

        assert read(store, leased).state == "inflight"
        assert ack(store, leased, now=NOW + 61) == [True]

    @pytest.mark.parametrize("on_expiry", ["drop", "dead-letter"])
    def test_a_message_released_past_its_expiry_expires_then(
        self, store: QueueStore, on_expiry: str
    ) -> None:
        store.configure(QUEUE, {"on_expiry": on_expiry}, now=NOW)
        put(store, ttl=30.0)
        leased = lease_one(store, timeout=1000.0)

        assert release(store, leased, error=BOOM, now=NOW + 60) == [True]

        assert lease(store, 9, now=NOW + 61) == []
        assert len(store.dead_letters(QUEUE)) == (on_expiry == "dead-letter")
        assert store.stats(QUEUE, now=NOW + 61).total == (on_expiry == "dead-letter")

    def test_a_message_whose_lease_runs_out_past_its_expiry_expires_then(
        self, store: QueueStore
    ) -> None:
        message = put(store, ttl=30.0)
        lease_one(store, timeout=60.0)

        assert lease(store, 9, now=NOW + 61) == []
        assert is_gone(store, message)

    def test_a_requeued_message_expires_no_more(self, store: QueueStore) -> None:
        dead = put_dead(store, ttl=30.0)

        store.requeue_dead_many(QUEUE, [dead.id], now=NOW + 10)

        again = lease_one(store, now=NOW + 1000)
        assert again.id == dead.id
        assert again.expires_at is None

    def test_a_dead_letter_does_not_expire(self, store: QueueStore) -> None:
        dead = put_dead(store, ttl=30.0)

        lease(store, 9, now=NOW + 60)

        assert read(store, dead).state == "dead"

    def test_an_expired_message_frees_its_dedupe_key(self, store: QueueStore) -> None:
        put(store, ttl=30.0, dedupe_key="k")
        lease(store, 9, now=NOW + 60)

        assert answer(store, dedupe_key="k", now=NOW + 61).fate is Fate.STORED

    def test_however_many_messages_expired_a_lease_finds_what_has_not(
        self, store: QueueStore
    ) -> None:
        put_all(store, range(600), ttl=30.0)
        put(store, "still good", now=NOW + 1)

        assert values(lease(store, 1, now=NOW + 60)) == ["still good"]
        assert drain(store, now=NOW + 60) == []


class CrashLimit(StoreCase):
    """A message that keeps killing its worker ends as a dead letter."""

    def test_a_message_that_crashed_too_often_becomes_a_dead_letter(
        self, store: QueueStore
    ) -> None:
        store.configure(QUEUE, {"crash_limit": 2}, now=NOW)
        message = put(store)

        _crash(store, 0)
        assert read(store, message).crashes == 0
        _crash(store, 20)
        assert read(store, message).crashes == 1

        assert lease(store, 1, now=NOW + 40) == []
        [dead] = store.dead_letters(QUEUE)
        assert dead.id == message.id
        assert dead.crashes == 2
        assert (dead.last_error or {})["type"] == "CrashLimitExceeded"

    def test_a_crash_is_counted_apart_from_failures(self, store: QueueStore) -> None:
        put(store)
        release(store, lease_one(store), error=BOOM)
        _crash(store, 0)

        again = lease_one(store, now=NOW + 20)

        assert (again.attempts, again.failures, again.crashes) == (3, 1, 1)

    def test_a_lease_without_a_liveness_name_ends_without_a_crash(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"crash_limit": 1}, now=NOW)
        put(store)
        lease_one(store, timeout=10.0, worker="w1")

        again = lease_one(store, now=NOW + 11)

        assert again.crashes == 0

    def test_what_was_only_prefetched_ends_without_a_crash(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"crash_limit": 1}, now=NOW)
        put(store)
        leased = lease_one(store, timeout=10.0, liveness="worker-1")
        store.extend([receipt(leased)], timeout=10.0, note="prefetched", now=NOW)

        again = lease_one(store, now=NOW + 11)

        assert again.crashes == 0

    def test_what_was_prefetched_and_then_begun_is_a_crash(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store, timeout=10.0, liveness="worker-1")
        store.extend([receipt(leased)], timeout=10.0, note="prefetched", now=NOW)
        store.extend([receipt(leased)], timeout=10.0, note="running", now=NOW)

        assert lease_one(store, now=NOW + 11).crashes == 1

    def test_the_note_of_one_lease_does_not_excuse_the_next(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store, timeout=10.0, liveness="worker-1")
        store.extend([receipt(leased)], timeout=10.0, note="prefetched", now=NOW)
        _crash(store, 11)

        assert lease_one(store, now=NOW + 40).crashes == 1

    def test_a_lease_that_is_settled_is_no_crash(self, store: QueueStore) -> None:
        put(store)
        release(store, lease_one(store, timeout=10.0, liveness="worker-1"), now=NOW + 60)

        assert lease_one(store, now=NOW + 61).crashes == 0

    def test_a_crash_limit_of_zero_is_no_limit(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"crash_limit": 0}, now=NOW)
        put(store)
        for number in range(6):
            _crash(store, 20 * number)

        assert lease_one(store, now=NOW + 500).crashes == 6

    def test_three_crashes_are_the_limit_unless_the_queue_says_otherwise(
        self, store: QueueStore
    ) -> None:
        put(store)
        for number in range(3):
            _crash(store, 20 * number)

        assert lease(store, 1, now=NOW + 500) == []
        assert len(store.dead_letters(QUEUE)) == 1

    def test_a_requeued_message_may_crash_as_often_again(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"crash_limit": 1}, now=NOW)
        message = put(store)
        _crash(store, 0)
        lease(store, 1, now=NOW + 20)

        store.requeue_dead_many(QUEUE, [message.id], now=NOW + 30)

        assert lease_one(store, now=NOW + 31).crashes == 0


def _crash(store: QueueStore, after: float) -> None:
    """A worker takes the message and is never heard of again; its lease lasts ten seconds."""
    lease_one(store, now=NOW + after, timeout=10.0, liveness="worker-1")
