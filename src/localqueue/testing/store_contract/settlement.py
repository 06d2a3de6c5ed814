"""Ending a lease together with what must become durable with it, and taking the next one."""

from __future__ import annotations

import pytest

from localqueue.errors import InvalidMessage
from localqueue.outcome import Ack, Cancel, DeadLetter, Release
from localqueue.stores.protocol import (
    Fate,
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
    answer,
    drain,
    is_gone,
    lease,
    lease_one,
    never_leased,
    new_put,
    operator,
    put,
    put_all,
    read,
    receipt,
    values,
)

RESULT = RecordChange("result", "r", b"42")


def _leased(store: QueueStore, value: str = "job") -> StoredMessage:
    put(store, value)
    return lease_one(store)


class Settlement(StoreCase):
    """All of it, or nothing."""

    def test_records_and_follow_ups_become_durable_with_the_acknowledgement(
        self, store: QueueStore
    ) -> None:
        leased = _leased(store)
        settle = Settle(receipt(leased), Ack(), records=(RESULT,), puts=(new_put("follow-up"),))

        assert store.settle(settle, now=NOW + 1) is Settled.DONE

        assert is_gone(store, leased)
        record = store.load_record("result", "r", now=NOW + 1)
        assert record is not None
        assert (record.value, record.version) == (b"42", 1)
        assert drain(store, now=NOW + 1) == ["follow-up"]

    def test_a_cancelled_message_is_removed_as_cancelled_and_not_as_done(
        self, store: QueueStore
    ) -> None:
        leased = _leased(store)

        assert store.settle(Settle(receipt(leased), Cancel()), now=NOW + 1) is Settled.DONE

        assert is_gone(store, leased)
        assert store.history(QUEUE, leased.id)[-1].kind == "cancelled"

    def test_a_stale_settlement_writes_nothing_at_all(self, store: QueueStore) -> None:
        put(store)
        old = lease_one(store, timeout=10.0)
        new = lease_one(store, now=NOW + 11)
        settle = Settle(receipt(old), Ack(), records=(RESULT,), puts=(new_put("follow-up"),))

        assert store.settle(settle, now=NOW + 12) is Settled.STALE

        assert read(store, new).state == "inflight"
        assert store.load_record("result", "r", now=NOW + 12) is None
        assert store.waiting(QUEUE, now=NOW) == 0

    def test_a_record_that_changed_meanwhile_stops_the_whole_settlement(
        self, store: QueueStore
    ) -> None:
        store.change_records([RecordChange("ledger", "k", b"other")], now=NOW)
        leased = _leased(store)
        conflict = RecordChange("ledger", "k", b"mine", expect=0)
        settle = Settle(
            receipt(leased), Ack(), records=(RESULT, conflict), puts=(new_put("follow-up"),)
        )

        assert store.settle(settle, now=NOW + 1) is Settled.CONFLICT

        assert read(store, leased).state == "inflight"
        assert store.load_record("result", "r", now=NOW + 1) is None
        assert store.waiting(QUEUE, now=NOW) == 0
        assert ack(store, leased, now=NOW + 2) == [True]

    def test_a_follow_up_that_cannot_be_stored_stops_the_whole_settlement(
        self, store: QueueStore
    ) -> None:
        leased = _leased(store)
        settle = Settle(receipt(leased), Ack(), records=(RESULT,), puts=(new_put(priority=1),))

        with pytest.raises(InvalidMessage):
            store.settle(settle, now=NOW + 1)

        assert read(store, leased).state == "inflight"
        assert store.load_record("result", "r", now=NOW + 1) is None

    def test_capacity_never_refuses_a_follow_up(self, store: QueueStore) -> None:
        settings = {"maxsize": 1, "overflow": "reject"}
        store.configure(QUEUE, settings, now=NOW)
        store.configure("next", settings, now=NOW)
        leased = _leased(store)
        put(store, "waiting")
        puts = (new_put("same queue"), new_put(1, queue="next"), new_put(2, queue="next"))

        settled = store.settle(Settle(receipt(leased), Ack(), puts=puts), now=NOW + 1)

        assert settled is Settled.DONE
        assert drain(store, now=NOW + 1) == ["waiting", "same queue"]
        assert drain(store, queue="next", now=NOW + 1) == [1, 2]

    def test_a_follow_up_is_deduplicated_like_any_put(self, store: QueueStore) -> None:
        put(store, "first", queue="next", dedupe_key="k")
        leased = _leased(store)
        follow_up = new_put("second", queue="next", dedupe_key="k")

        settled = store.settle(Settle(receipt(leased), Ack(), puts=(follow_up,)), now=NOW)

        assert settled is Settled.DONE
        assert drain(store, queue="next") == ["first"]

    def test_a_settlement_frees_the_dedupe_key_before_its_follow_ups_are_put(
        self, store: QueueStore
    ) -> None:
        put(store, "first", dedupe_key="k")
        leased = lease_one(store)

        store.settle(Settle(receipt(leased), Ack()), now=NOW)

        assert answer(store, "second", dedupe_key="k").fate is Fate.STORED

    def test_a_release_settles_with_records_too(self, store: QueueStore) -> None:
        leased = _leased(store)
        settle = Settle(receipt(leased), Release(10.0, BOOM), records=(RESULT,))

        assert store.settle(settle, now=NOW + 1) is Settled.DONE

        again = lease_one(store, now=NOW + 11)
        assert (again.attempts, again.failures, again.last_error) == (2, 1, BOOM)
        assert store.load_record("result", "r", now=NOW + 11) is not None

    @pytest.mark.parametrize("settlement", [Release(0.0, BOOM, 3), DeadLetter(BOOM, 3)])
    def test_an_error_counts_for_as_many_failures_as_it_says(
        self, store: QueueStore, settlement: Release | DeadLetter
    ) -> None:
        leased = _leased(store)

        store.settle(Settle(receipt(leased), settlement), now=NOW)

        assert read(store, leased).failures == 3

    def test_a_dead_letter_settles_with_follow_ups_too(self, store: QueueStore) -> None:
        leased = _leased(store)
        settle = Settle(receipt(leased), DeadLetter(BOOM), puts=(new_put("alarm", queue="ops"),))

        assert store.settle(settle, now=NOW + 1) is Settled.DONE

        assert read(store, leased).state == "dead"
        assert drain(store, queue="ops", now=NOW + 1) == ["alarm"]

    def test_an_operator_can_settle(self, store: QueueStore) -> None:
        leased = _leased(store)

        assert store.settle(Settle(operator(leased), Ack()), now=NOW) is Settled.DONE
        assert store.settle(Settle(receipt(leased), Ack()), now=NOW) is Settled.STALE

    def test_what_was_never_leased_can_be_settled_while_nobody_holds_it(
        self, store: QueueStore
    ) -> None:
        message = put(store)

        assert store.settle(Settle(never_leased(message), Ack()), now=NOW) is Settled.DONE
        assert is_gone(store, message)


class SettleAndLease(StoreCase):
    """One transaction for the end of some leases and the beginning of the next."""

    def test_settled_leases_make_way_for_the_next(self, store: QueueStore) -> None:
        put_all(store, range(6))
        first = lease(store, 3)

        settled, leased = store.settle_and_lease(
            [Settle(receipt(message), Ack()) for message in first],
            LeaseRequest((QUEUE,), 2, worker="w1"),
            now=NOW + 1,
        )

        assert settled == [Settled.DONE] * 3
        assert values(leased) == [3, 4]
        assert [message.leased_by for message in leased] == ["w1", "w1"]
        assert [message.leased_until for message in leased] == [NOW + 31, NOW + 31]

    def test_a_refused_settlement_does_not_touch_its_neighbours(self, store: QueueStore) -> None:
        store.change_records([RecordChange("ledger", "k", b"other")], now=NOW)
        put_all(store, range(4))
        stale, conflicted, good, failed = lease(store, 4)
        ack(store, stale)
        conflict = RecordChange("ledger", "k", b"mine", expect=0)

        settled, leased = store.settle_and_lease(
            [
                Settle(receipt(stale), Ack(), puts=(new_put("of the stale"),)),
                Settle(receipt(conflicted), Ack(), records=(RESULT, conflict)),
                Settle(receipt(good), Ack(), puts=(new_put("of the good"),)),
                Settle(receipt(failed), Release(60.0, BOOM)),
            ],
            LeaseRequest((QUEUE,), 9),
            now=NOW + 1,
        )

        assert settled == [Settled.STALE, Settled.CONFLICT, Settled.DONE, Settled.DONE]
        assert values(leased) == ["of the good"]
        assert read(store, conflicted).state == "inflight"
        assert is_gone(store, good)
        assert read(store, failed).failures == 1
        assert store.load_record("result", "r", now=NOW + 1) is None

    def test_settling_alone_leases_nothing(self, store: QueueStore) -> None:
        put_all(store, range(2))
        first = lease_one(store)

        answers = store.settle_and_lease([Settle(receipt(first), Ack())], None, now=NOW)

        assert answers == ([Settled.DONE], [])
        assert store.qsize(QUEUE, now=NOW) == 1

    def test_a_settlement_can_hand_its_key_to_the_same_worker(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"ordering": "per-key"}, now=NOW)
        put_all(store, ["head", "next"], ordering_key="k")
        head = lease_one(store)

        _, leased = store.settle_and_lease(
            [Settle(receipt(head), Ack())], LeaseRequest((QUEUE,)), now=NOW + 1
        )

        assert values(leased) == ["next"]

    def test_a_message_released_at_once_may_be_leased_again_in_the_same_call(
        self, store: QueueStore
    ) -> None:
        put(store)
        leased = lease_one(store)

        _, again = store.settle_and_lease(
            [Settle(receipt(leased), Release())], LeaseRequest((QUEUE,)), now=NOW + 1
        )

        assert [message.id for message in again] == [leased.id]
        assert again[0].token > leased.token

    def test_a_follow_up_is_there_before_the_next_lease(self, store: QueueStore) -> None:
        leased = _leased(store)

        _, following = store.settle_and_lease(
            [Settle(receipt(leased), Ack(), puts=(new_put("follow-up"),))],
            LeaseRequest((QUEUE,)),
            now=NOW + 1,
        )

        assert values(following) == ["follow-up"]
