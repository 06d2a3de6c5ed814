"""Counts that agree with what is there, dead letters and their budget, and purging."""

from __future__ import annotations

from collections import Counter

import pytest

from localqueue.stores.protocol import QueueStore
from localqueue.testing.store_contract.phrases import (
    BOOM,
    NOW,
    QUEUE,
    StoreCase,
    ack,
    dead_letter,
    lease,
    lease_one,
    never_leased,
    operator,
    put,
    put_all,
    put_dead,
    read,
    recount,
    release,
    values,
)


class Counting(StoreCase):
    """As if everything due had happened already."""

    def test_due_and_abandoned_messages_count_as_ready(self, store: QueueStore) -> None:
        put_all(store, range(2), delay=10.0)
        put(store)
        lease_one(store, timeout=10.0, worker="w1")

        before = store.stats(QUEUE, now=NOW + 9)
        after = store.stats(QUEUE, now=NOW + 11)

        assert (before.ready, before.delayed, before.inflight) == (0, 2, 1)
        assert (after.ready, after.delayed, after.inflight) == (3, 0, 0)
        assert after.total == 3
        assert store.qsize(QUEUE, now=NOW + 11) == 3

    def test_counting_changes_nothing(self, store: QueueStore) -> None:
        put(store, delay=10.0)
        put(store, ttl=5.0)
        lease_one(store, timeout=5.0)
        end = store.journal_end()

        store.stats(QUEUE, now=NOW + 100)
        store.qsize(QUEUE, now=NOW + 100)

        assert store.journal(after=end) == []
        assert store.stats(QUEUE, now=NOW + 1).inflight == 1

    def test_a_pause_does_not_change_the_counts(self, store: QueueStore) -> None:
        put(store)
        store.configure(QUEUE, {"paused": True}, now=NOW)

        assert store.qsize(QUEUE, now=NOW) == 1
        assert store.stats(QUEUE, now=NOW).ready == 1

    def test_current_and_former_leases_are_counted_by_worker(self, store: QueueStore) -> None:
        put_all(store, range(4))
        first = lease(store, 2, worker="w1")
        lease(store, 1, worker="w2")
        lease(store, 1)
        ack(store, first[0])
        release(store, first[1])
        lease(store, 1, worker="w1", now=NOW + 1)

        stats = store.stats(QUEUE, now=NOW + 1)

        assert stats.by_worker_id == {"w1": 1, "w2": 1}
        assert stats.leases_by_worker_id == {"w1": 3, "w2": 1}

    def test_a_removing_lease_counts_for_its_worker(self, store: QueueStore) -> None:
        put(store)
        lease_one(store, worker="w1", remove=True)

        stats = store.stats(QUEUE, now=NOW)

        assert stats.by_worker_id == {}
        assert stats.leases_by_worker_id == {"w1": 1}

    def test_worker_statistics_belong_to_the_queue(self, store: QueueStore) -> None:
        put(store)
        put(store, queue="other")
        lease_one(store, worker="w1")
        store.record_worker_heartbeat(QUEUE, "w1", now=NOW)

        other = store.stats("other", now=NOW)

        assert other.by_worker_id == {}
        assert other.leases_by_worker_id == {}
        assert other.last_seen_by_worker_id == {}

    def test_a_later_heartbeat_replaces_the_earlier(self, store: QueueStore) -> None:
        for moment in (NOW, NOW + 5):
            store.record_worker_heartbeat(QUEUE, "w1", now=moment)
        store.record_worker_heartbeat(QUEUE, "w2", now=NOW + 3)

        seen = store.stats(QUEUE, now=NOW + 9).last_seen_by_worker_id

        assert seen == {"w1": NOW + 5, "w2": NOW + 3}

    def test_ages_are_told_from_when_a_message_became_due_and_was_leased(
        self, store: QueueStore
    ) -> None:
        put(store, "first")
        put(store, "second")
        put(store, "ready at 10", delay=10.0)
        lease_one(store, timeout=1000.0, now=NOW + 1)
        lease_one(store, timeout=1000.0, now=NOW + 5)

        stats = store.stats(QUEUE, now=NOW + 15)

        assert stats.oldest_ready_age_seconds == pytest.approx(5.0)
        assert stats.oldest_inflight_age_seconds == pytest.approx(14.0)
        assert stats.average_inflight_age_seconds == pytest.approx(12.0)

    def test_there_is_no_age_where_there_is_no_message(self, store: QueueStore) -> None:
        put(store, delay=10.0)

        stats = store.stats(QUEUE, now=NOW)

        assert stats.oldest_ready_age_seconds is None
        assert stats.oldest_inflight_age_seconds is None
        assert stats.average_inflight_age_seconds is None

    def test_the_next_due_moment_is_that_of_a_delay_or_of_a_lease(self, store: QueueStore) -> None:
        assert store.next_due([QUEUE]) is None
        put(store)
        assert store.next_due([QUEUE]) is None

        lease_one(store, timeout=30.0)
        assert store.next_due([QUEUE]) == NOW + 30
        put(store, delay=10.0)
        assert store.next_due([QUEUE]) == NOW + 10
        put(store, delay=5.0, queue="other")
        assert store.next_due([QUEUE]) == NOW + 10
        assert store.next_due([QUEUE, "other"]) == NOW + 5

    def test_counts_agree_with_the_journal_and_with_what_is_there(self, store: QueueStore) -> None:
        _live_a_little(store)
        now = NOW + 200

        counted = store.stats(QUEUE, now=now)

        assert recount(store) == {
            "ready": counted.ready,
            "delayed": counted.delayed - counted.held,
            "held": counted.held,
            "inflight": counted.inflight,
            "dead": counted.dead,
        }
        assert counted.total == sum(recount(store).values())
        assert len(store.dead_letters(QUEUE)) == counted.dead
        assert len(store.peek(QUEUE, 1000, now=now)) == counted.ready
        assert store.waiting(QUEUE, now=now) == counted.ready + counted.delayed

    def test_counts_are_the_same_after_a_reopening(self, store: QueueStore) -> None:
        _live_a_little(store)
        before = store.stats(QUEUE, now=NOW + 200)

        again = self.reopened(store)

        assert again.stats(QUEUE, now=NOW + 200) == before

    def test_counts_stay_right_over_thousands_of_events(self, store: QueueStore) -> None:
        for round_ in range(6):
            moment = NOW + round_
            put_all(store, range(400), now=moment)
            leased = lease(store, 300, now=moment, worker="w1", timeout=1e6)
            ack(store, *leased[:200], now=moment)
            dead_letter(store, *leased[200:250], now=moment)

        stats = store.stats(QUEUE, now=NOW + 10)

        assert (stats.ready, stats.inflight, stats.dead) == (600, 300, 300)
        assert stats.by_worker_id == {"w1": 300}
        assert stats.leases_by_worker_id == {"w1": 1800}
        assert store.waiting(QUEUE, now=NOW) == 600


def _live_a_little(store: QueueStore) -> None:
    """A bit of everything, at a pace that leaves nothing unswept at NOW + 200."""
    store.configure(QUEUE, {"ordering": "per-key"}, now=NOW)
    put_all(store, range(10))
    put_all(store, range(5), ordering_key="k")
    put_all(store, range(5), delay=20.0)
    put_all(store, range(3), delay=10_000.0)
    put(store, ttl=5.0, delay=8.0)
    put(store, dedupe_key="d")
    put(store, dedupe_key="d")
    leased = lease(store, 6, now=NOW + 1)
    ack(store, leased[0], leased[1], now=NOW + 2)
    release(store, leased[2], error=BOOM, now=NOW + 2)
    release(store, leased[3], delay=10_000.0, now=NOW + 2)
    dead_letter(store, leased[4], error=BOOM, now=NOW + 3)
    store.cancel(QUEUE, put(store, now=NOW + 4).id, now=NOW + 4)
    [dead, *_] = store.dead_letters(QUEUE)
    store.requeue_dead_many(QUEUE, [dead.id], now=NOW + 5)
    put_dead(store, now=NOW + 5)
    put_dead(store, now=NOW + 6)
    lease(store, 4, now=NOW + 60, timeout=1e6, worker="w1")
    lease(store, 1, now=NOW + 61, timeout=1e6, remove=True)
    store.prune_dead_letters(QUEUE, older_than=194.5, now=NOW + 200)


class DeadLetters(StoreCase):
    """Kept for people to look at; a fresh start when they ask for it."""

    def test_a_requeued_message_has_a_fresh_budget_and_keeps_its_past(
        self, store: QueueStore
    ) -> None:
        put(store)
        release(store, lease_one(store), error=BOOM, now=NOW + 1)
        leased = lease_one(store, now=NOW + 2)
        dead_letter(store, leased, error=BOOM, now=NOW + 3)

        store.requeue_dead_many(QUEUE, [leased.id], now=NOW + 4)

        again = lease_one(store, now=NOW + 5)
        assert (again.failures, again.crashes) == (0, 0)
        assert again.attempts == 3
        assert (again.last_error, again.failed_at) == (BOOM, NOW + 3)

    def test_failures_are_counted_only_where_an_error_is_given(self, store: QueueStore) -> None:
        put(store)
        release(store, lease_one(store), error=BOOM)
        release(store, lease_one(store))
        release(store, lease_one(store), error=BOOM)

        again = lease_one(store)

        assert (again.attempts, again.failures) == (4, 2)

    def test_a_dead_letter_without_an_error_keeps_the_last_one(self, store: QueueStore) -> None:
        put(store)
        release(store, lease_one(store), error=BOOM, now=NOW + 1)
        leased = lease_one(store, now=NOW + 2)

        dead_letter(store, leased, now=NOW + 3)

        assert (read(store, leased).last_error, read(store, leased).failed_at) == (BOOM, NOW + 1)

    def test_the_error_of_a_dead_letter_can_be_replaced(self, store: QueueStore) -> None:
        dead = put_dead(store)

        assert dead_letter(store, operator(dead), error=BOOM, now=NOW + 9) == [True]

        assert read(store, dead).last_error == BOOM
        assert read(store, dead).failed_at == NOW + 9
        assert store.stats(QUEUE, now=NOW + 9).dead == 1

    def test_dead_letters_without_an_error_are_ordered_by_their_puts(
        self, store: QueueStore
    ) -> None:
        put_all(store, ["a", "b", "c"])
        a, b, c = lease(store, 3)
        dead_letter(store, c, now=NOW + 1)
        dead_letter(store, a, error=BOOM, now=NOW + 2)
        dead_letter(store, b, now=NOW + 3)

        assert values(store.dead_letters(QUEUE)) == ["b", "c", "a"]

    def test_the_age_of_a_dead_letter_without_an_error_is_that_of_its_put(
        self, store: QueueStore
    ) -> None:
        message = put(store)
        dead_letter(store, never_leased(message), now=NOW + 100)

        assert store.count_dead_letters_older_than(QUEUE, older_than=90, now=NOW + 101) == 1
        assert store.prune_dead_letters(QUEUE, older_than=90, now=NOW + 101) == 1

    def test_however_many_dead_letters_are_old_they_are_pruned(self, store: QueueStore) -> None:
        dead_letter(store, *(never_leased(m) for m in put_all(store, range(600))))
        put_dead(store, queue="other")

        assert store.prune_dead_letters(QUEUE, older_than=10, now=NOW + 20) == 600
        assert store.stats(QUEUE, now=NOW + 20).total == 0
        assert len(store.dead_letters("other")) == 1

    def test_dead_letters_survive_a_reopening(self, store: QueueStore) -> None:
        put(store, "x")
        dead_letter(store, lease_one(store, worker="w1"), error=BOOM, now=NOW + 1)

        [dead] = self.reopened(store).dead_letters(QUEUE)

        assert (dead.last_error, dead.failed_at, dead.attempts) == (BOOM, NOW + 1, 1)

    def test_the_history_of_a_message_tells_its_attempts(self, store: QueueStore) -> None:
        put(store)
        release(store, lease_one(store, worker="w1"), error=BOOM, now=NOW + 1)
        lease_one(store, worker="w2", now=NOW + 2, timeout=10.0)
        third = lease_one(store, worker="w3", now=NOW + 20)
        dead_letter(store, third, error=BOOM, now=NOW + 21)
        store.requeue_dead_many(QUEUE, [third.id], now=NOW + 22)
        present = lease_one(store, worker="w4", now=NOW + 23)

        for history in (present.history, read(store, present).history):
            ends = [entry for entry in history if entry["type"] != "leased"]
            kinds = [entry["type"] for entry in ends]
            assert kinds == ["released", "lease_expired", "dead_lettered", "requeued"]
            assert [entry["attempt"] for entry in ends[:3]] == [1, 2, 3]
            assert ends[0]["last_error"] == BOOM
            assert "last_error" not in ends[1]
            lease_now = history[-1]
            assert (lease_now["type"], lease_now["attempt"]) == ("leased", 4)
            assert (lease_now["at"], lease_now["leased_by"]) == (NOW + 23, "w4")

    def test_the_history_of_a_message_that_was_only_put_is_empty(self, store: QueueStore) -> None:
        message = put(store)

        assert message.history == []
        assert read(store, message).history == []


class Purging(StoreCase):
    """Everything of the queue but its settings."""

    def test_purging_forgets_worker_statistics(self, store: QueueStore) -> None:
        put_all(store, range(2))
        lease(store, 1, worker="w1")
        store.record_worker_heartbeat(QUEUE, "w1", now=NOW)

        assert store.purge(QUEUE, now=NOW) == 2

        stats = store.stats(QUEUE, now=NOW)
        assert stats.total == 0
        assert stats.by_worker_id == {}
        assert stats.leases_by_worker_id == {}
        assert stats.last_seen_by_worker_id == {}

    def test_purging_keeps_the_settings(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"maxsize": 5}, now=NOW)
        row = store.settings(QUEUE)
        put(store)

        store.purge(QUEUE, now=NOW)

        assert store.settings(QUEUE) == row
        assert store.queues() == [QUEUE]

    def test_what_is_put_after_a_purge_is_counted_anew(self, store: QueueStore) -> None:
        put_all(store, range(3))
        put(store, delay=60.0)
        put_dead(store)
        store.purge(QUEUE, now=NOW)

        put(store, "new")
        lease_one(store, worker="w1")

        stats = store.stats(QUEUE, now=NOW)
        assert (stats.ready, stats.delayed, stats.inflight, stats.dead) == (0, 0, 1, 0)
        assert stats.leases_by_worker_id == {"w1": 1}

    def test_however_many_messages_there_are_all_are_purged(self, store: QueueStore) -> None:
        put_all(store, range(3000))

        assert store.purge(QUEUE, now=NOW) == 3000
        assert Counter(recount(store)).total() == 0
