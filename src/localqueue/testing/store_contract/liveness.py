"""Leases under a liveness name: prefetched, held from outside, ended when their worker is dead."""

from __future__ import annotations

import pytest

from localqueue.message import Receipt
from localqueue.outcome import Ack, Crashed
from localqueue.stores.protocol import (
    PREFETCHED,
    LeaseAnswer,
    LeaseRequest,
    QueueStore,
    Settle,
    Settled,
    StoredMessage,
)
from localqueue.stores.records import RecordChange
from localqueue.testing.store_contract.phrases import (
    BOOM,
    NOW,
    QUEUE,
    StoreCase,
    ack,
    events,
    lease,
    lease_one,
    never_leased,
    new_put,
    operator,
    put,
    put_all,
    put_dead,
    read,
    receipt,
    release,
    values,
)

ME, OTHER = "worker-1", "worker-2"


class Prefetching(StoreCase):
    """A lease says whether a handler has begun."""

    def test_the_end_of_a_prefetched_lease_is_no_crash(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"crash_limit": 1}, now=NOW)
        put_all(store, range(3))
        lease(store, 3, timeout=10.0, liveness=ME, prefetched=True)

        again = lease(store, 3, now=NOW + 11)

        assert [message.crashes for message in again] == [0, 0, 0]

    def test_a_prefetched_message_that_is_not_plain_is_prefetched_too(
        self, store: QueueStore
    ) -> None:
        store.configure(QUEUE, {"crash_limit": 1}, now=NOW)
        put(store, headers=b'{"trace":"1"}', dedupe_key="k")
        lease_one(store, timeout=10.0, liveness=ME, prefetched=True)

        assert lease_one(store, now=NOW + 11).crashes == 0

    def test_what_was_leased_ahead_and_given_back_keeps_its_place(self, store: QueueStore) -> None:
        put_all(store, range(4))
        ahead = lease(store, 2, liveness=ME, prefetched=True)

        for leased in reversed(ahead):
            release(store, leased, now=NOW + 1)

        assert values(lease(store, 4, now=NOW + 2)) == [0, 1, 2, 3]

    def test_so_does_what_was_leased_ahead_by_one_who_is_gone(self, store: QueueStore) -> None:
        put_all(store, range(4))
        running, _ = lease(store, 2, liveness=ME, prefetched=True)

        store.end_leases_of(ME, [running.id], now=NOW + 1)

        assert values(lease(store, 4, now=NOW + 2)) == [1, 2, 3, 0]

    def test_what_had_begun_goes_behind_what_is_ready(self, store: QueueStore) -> None:
        put_all(store, range(2))
        begun = lease_one(store, liveness=ME, prefetched=True)
        store.extend([receipt(begun)], timeout=10.0, now=NOW)

        release(store, begun, now=NOW + 1)

        assert values(lease(store, 2, now=NOW + 2)) == [1, 0]

    def test_an_extension_without_the_note_says_that_the_handler_has_begun(
        self, store: QueueStore
    ) -> None:
        put(store)
        leased = lease_one(store, timeout=10.0, liveness=ME, prefetched=True)
        store.extend([receipt(leased)], timeout=10.0, now=NOW)

        assert lease_one(store, now=NOW + 11).crashes == 1

    def test_an_extension_with_the_note_keeps_it_prefetched(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store, timeout=10.0, liveness=ME, prefetched=True)
        store.extend([receipt(leased)], timeout=10.0, note=PREFETCHED, now=NOW)

        assert lease_one(store, now=NOW + 11).crashes == 0

    def test_prefetched_leases_are_settled_and_taken_in_one_call(self, store: QueueStore) -> None:
        put_all(store, range(4))
        first = lease(store, 2, liveness=ME, prefetched=True)

        settled, leased = store.settle_and_lease(
            [Settle(receipt(message), Ack()) for message in first],
            LeaseRequest((QUEUE,), 2, 10.0, liveness=ME, prefetched=True),
            now=NOW + 1,
        )

        assert settled == [Settled.DONE] * 2
        assert values(leased) == [2, 3]
        assert [message.crashes for message in lease(store, 2, now=NOW + 12)] == [0, 0]


class KeptLeases(StoreCase):
    """Somebody else may hold all leases of a liveness name, without their receipts."""

    def test_all_leases_of_the_name_are_held_and_no_others(self, store: QueueStore) -> None:
        put_all(store, range(4))
        put(store, "elsewhere", queue="other")
        lease(store, 2, timeout=10.0, liveness=ME)
        lease(store, 1, queue="other", timeout=10.0, liveness=ME)
        lease(store, 1, timeout=10.0, liveness=OTHER)
        lease(store, 1, timeout=10.0)

        assert store.extend_of(ME, timeout=30.0, now=NOW + 5) == 3

        assert values(lease(store, 9, now=NOW + 34)) == [2, 3]
        assert values(lease(store, 9, queue=(QUEUE, "other"), now=NOW + 36)) == [0, 1, "elsewhere"]

    def test_receipts_stay_good(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store, timeout=10.0, liveness=ME)

        store.extend_of(ME, timeout=30.0, now=NOW + 5)

        assert read(store, leased).leased_until == NOW + 35
        assert store.extend([receipt(leased)], timeout=1.0, now=NOW + 6) == [LeaseAnswer.HELD]
        assert ack(store, leased, now=NOW + 6) == [True]

    def test_no_lease_becomes_shorter(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store, timeout=300.0, liveness=ME)

        assert store.extend_of(ME, timeout=5.0, now=NOW) == 1

        assert read(store, leased).leased_until == NOW + 300

    @pytest.mark.parametrize(("prefetched", "crashes"), [(True, 0), (False, 1)])
    def test_notes_stay(self, store: QueueStore, prefetched: bool, crashes: int) -> None:
        put(store)
        lease_one(store, timeout=10.0, liveness=ME, prefetched=prefetched)

        store.extend_of(ME, timeout=10.0, now=NOW + 5)

        assert lease_one(store, now=NOW + 16).crashes == crashes

    def test_a_name_that_holds_nothing_is_no_error(self, store: QueueStore) -> None:
        put(store)
        ack(store, lease_one(store, liveness=ME))

        assert store.extend_of(ME, timeout=5.0, now=NOW) == 0
        assert store.end_leases_of(ME, [], now=NOW) == 0


class LeasesByName(StoreCase):
    """Whoever lost its receipts finds what it holds by its liveness name."""

    def test_all_messages_leased_under_the_name_in_this_queue_are_found_and_no_others(
        self, store: QueueStore
    ) -> None:
        put_all(store, range(4))
        put(store, "elsewhere", queue="other")
        mine = lease(store, 2, worker="w1", liveness=ME)
        lease(store, 1, queue="other", liveness=ME)
        lease(store, 1, liveness=OTHER)
        lease(store, 1, worker=ME)

        found = store.leased_under(ME, QUEUE)

        assert [(each.id, each.token, each.body) for each in found] == [
            (each.id, each.token, each.body) for each in mine
        ]
        assert {(each.state, each.leased_by, each.attempts) for each in found} == {
            ("inflight", "w1", 1)
        }
        assert ack(store, *found) == [True, True]

    def test_they_come_in_the_order_in_which_they_were_leased(self, store: QueueStore) -> None:
        put_all(store, range(3))
        first, *_ = lease(store, 3, liveness=ME)
        release(store, first)
        lease(store, 1, liveness=ME)

        found = store.leased_under(ME, QUEUE)

        assert values(found) == [1, 2, 0]
        assert [each.token for each in found] == sorted(each.token for each in found)

    def test_a_range_of_tokens_leaves_out_its_start_and_has_its_end(
        self, store: QueueStore
    ) -> None:
        put_all(store, range(5))
        tokens = [each.token for each in lease(store, 5, liveness=ME)]

        part = store.leased_under(ME, QUEUE, after=tokens[0], upto=tokens[3])
        rest = store.leased_under(ME, QUEUE, after=tokens[3])

        assert (values(part), values(rest)) == ([1, 2, 3], [4])

    def test_what_was_settled_or_belongs_to_another_by_now_is_not_found(
        self, store: QueueStore
    ) -> None:
        put_all(store, range(4))
        done, back, taken, kept = lease(store, 4, timeout=10.0, liveness=ME)
        ack(store, done)
        release(store, back, delay=60.0)
        store.extend([receipt(kept)], timeout=60.0, now=NOW)
        _retaken(store, taken)

        assert values(store.leased_under(ME, QUEUE)) == [3]

    def test_a_lease_whose_time_is_over_is_found_until_somebody_ends_it(
        self, store: QueueStore
    ) -> None:
        put(store)
        leased = lease_one(store, timeout=10.0, liveness=ME)

        assert store.extend_of(ME, timeout=10.0, now=NOW + 11) == 1
        assert [each.id for each in store.leased_under(ME, QUEUE)] == [leased.id]

    def test_a_queue_that_was_never_used_has_none(self, store: QueueStore) -> None:
        assert store.leased_under(ME, "never used") == []


class DeadWorkers(StoreCase):
    """What a dead worker held comes back at once; only what it ran is charged."""

    def test_all_its_leases_end_at_once(self, store: QueueStore) -> None:
        put_all(store, range(3))
        put(store, "elsewhere", queue="other")
        mine = lease(store, 9, queue=(QUEUE, "other"), liveness=ME)

        assert store.end_leases_of(ME, [], now=NOW + 1) == 4

        assert ack(store, *mine, now=NOW + 1) == [False] * 4
        again = lease(store, 9, queue=(QUEUE, "other"), now=NOW + 1)
        assert values(again) == [0, 1, 2, "elsewhere"]
        assert [message.attempts for message in again] == [2] * 4

    def test_only_what_was_running_is_charged(self, store: QueueStore) -> None:
        put_all(store, range(3))
        leased = lease(store, 3, liveness=ME)

        store.end_leases_of(ME, [leased[1].id], now=NOW + 1)

        again = lease(store, 3, now=NOW + 1)
        assert [(message.crashes, message.failures) for message in again] == [
            (0, 0),
            (1, 0),
            (0, 0),
        ]

    def test_a_message_that_was_prefetched_and_is_running_is_charged(
        self, store: QueueStore
    ) -> None:
        put(store)
        leased = lease_one(store, liveness=ME, prefetched=True)

        store.end_leases_of(ME, [leased.id], now=NOW + 1)

        assert lease_one(store, now=NOW + 1).crashes == 1

    def test_one_crash_too_many_makes_a_dead_letter(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"crash_limit": 2}, now=NOW)
        put_all(store, ["poison", "innocent"])
        for round_ in range(2):
            held = lease(store, 2, now=NOW + round_, liveness=f"worker-{round_}", prefetched=True)
            poison = held[0] if values(held)[0] == "poison" else held[1]
            store.end_leases_of(f"worker-{round_}", [poison.id], now=NOW + round_)

        assert values(lease(store, 9, now=NOW + 2)) == ["innocent"]
        [dead] = store.dead_letters(QUEUE)
        assert (dead.id, dead.crashes, dead.failures) == (poison.id, 2, 0)
        assert (dead.last_error or {})["type"] == "CrashLimitExceeded"

    def test_the_leases_of_others_are_left_alone(self, store: QueueStore) -> None:
        put_all(store, range(3))
        [mine] = lease(store, 1, liveness=ME)
        others = [lease_one(store, liveness=OTHER), lease_one(store)]
        ids = [message.id for message in (mine, *others)]

        assert store.end_leases_of(ME, ids, now=NOW + 1) == 1

        assert ack(store, *others, now=NOW + 1) == [True, True]

    def test_what_it_had_settled_is_left_alone(self, store: QueueStore) -> None:
        put_all(store, range(3))
        done, failed, taken = lease(store, 3, timeout=10.0, liveness=ME)
        ack(store, done)
        release(store, failed, delay=60.0, error=BOOM)
        theirs = _retaken(store, taken)
        ids = [message.id for message in (done, failed, taken)]

        assert store.end_leases_of(ME, ids, now=NOW + 12) == 0

        assert read(store, failed).crashes == 0
        assert ack(store, theirs, now=NOW + 12) == [True]

    def test_however_many_it_held_all_come_back(self, store: QueueStore) -> None:
        put_all(store, range(700))
        held = lease(store, 700, liveness=ME, prefetched=True)

        assert store.end_leases_of(ME, [held[650].id], now=NOW + 1) == 700

        again = lease(store, 700, now=NOW + 1)
        # What was running comes last; what was only leased ahead has kept its place.
        assert values(again) == [*range(650), *range(651, 700), 650]
        assert [message.crashes for message in again] == [0] * 699 + [1]

    def test_a_key_goes_on_with_the_same_message(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"ordering": "per-key"}, now=NOW)
        put_all(store, ["head", "next"], ordering_key="k")
        lease_one(store, liveness=ME)

        store.end_leases_of(ME, [], now=NOW + 1)

        assert values(lease(store, 9, now=NOW + 1)) == ["head"]

    def test_what_came_from_another_store_is_known_by_the_id_it_had_there(
        self, store: QueueStore
    ) -> None:
        put(store, id="feedc0de" * 4)
        lease_one(store, liveness=ME)

        store.end_leases_of(ME, ["feedc0de" * 4], now=NOW + 1)

        assert lease_one(store, now=NOW + 1).crashes == 1

    def test_the_journal_has_it_as_the_end_of_a_lease(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store, worker="w1", liveness=ME)

        store.end_leases_of(ME, [leased.id], now=NOW + 1)

        last = events(store)[-1]
        assert (last.kind, last.by, last.worker) == ("lease_expired", "sweep", "w1")
        assert (last.message_id, last.ran) == (leased.id, 1.0)


class Crashes(StoreCase):
    """Whoever saw a handler's process die says so, and the store counts."""

    def test_a_crash_is_delivered_again_and_counted(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store)

        settled = store.settle(Settle(receipt(leased), Crashed(BOOM)), now=NOW + 1)

        assert settled is Settled.DONE
        again = lease_one(store, now=NOW + 1)
        assert (again.attempts, again.crashes, again.failures) == (2, 1, 0)
        assert again.last_error == BOOM

    def test_a_crash_without_an_error_leaves_the_old_one_standing(self, store: QueueStore) -> None:
        put(store)
        release(store, lease_one(store), error=BOOM)

        store.settle(Settle(receipt(lease_one(store)), Crashed()), now=NOW)

        again = lease_one(store)
        assert (again.crashes, again.failures, again.last_error) == (1, 1, BOOM)

    def test_at_the_limit_a_crash_makes_a_dead_letter_that_says_how(
        self, store: QueueStore
    ) -> None:
        store.configure(QUEUE, {"crash_limit": 1}, now=NOW)
        put(store)

        settled, leased = store.settle_and_lease(
            [Settle(receipt(lease_one(store)), Crashed(BOOM))], LeaseRequest((QUEUE,)), now=NOW
        )

        assert settled == [Settled.DONE]
        assert list(leased) == []
        [dead] = store.dead_letters(QUEUE)
        assert dead.crashes == 1
        assert (dead.last_error or {})["type"] == "CrashLimitExceeded"
        assert "boom" in (dead.last_error or {})["message"]

    def test_a_crash_limit_of_zero_never_makes_a_dead_letter_of_a_crash(
        self, store: QueueStore
    ) -> None:
        store.configure(QUEUE, {"crash_limit": 0}, now=NOW)
        put(store)
        for _ in range(5):
            store.settle(Settle(receipt(lease_one(store)), Crashed()), now=NOW)

        assert lease_one(store).crashes == 5

    def test_a_crash_settles_with_records_and_follow_ups_too(self, store: QueueStore) -> None:
        put(store)
        settle = Settle(
            receipt(lease_one(store)),
            Crashed(),
            records=(RecordChange("ledger", "k", b"crashed"),),
            puts=(new_put("alarm", queue="ops"),),
        )

        assert store.settle(settle, now=NOW) is Settled.DONE

        assert store.load_record("ledger", "k", now=NOW) is not None
        assert values(lease(store, 1, queue="ops")) == ["alarm"]

    def test_only_a_lease_can_crash(self, store: QueueStore) -> None:
        dead = put_dead(store)
        waiting = put(store)
        stale: list[Receipt] = [never_leased(waiting), operator(waiting), operator(dead)]

        settled = [store.settle(Settle(one, Crashed()), now=NOW) for one in stale]

        assert settled == [Settled.STALE] * 3
        assert read(store, waiting).crashes == 0


def _retaken(store: QueueStore, message: StoredMessage) -> StoredMessage:
    """Its lease ran out, and another worker has it."""
    [again] = lease(store, 1, now=NOW + 11, liveness=OTHER)
    assert again.id == message.id
    return again
