"""Batches, leases, tokens, extension, cancellation, and who may settle what."""

from __future__ import annotations

import threading
from itertools import chain

import pytest

from localqueue.errors import InvalidArgument, InvalidMessage, StoreClosed
from localqueue.message import Receipt
from localqueue.stores.protocol import (
    LARGEST_BATCH,
    Cancelled,
    Fate,
    LeaseAnswer,
    Put,
    QueueStore,
)
from localqueue.testing.store_contract.phrases import (
    BOOM,
    NOW,
    QUEUE,
    StoreCase,
    ack,
    answer,
    dead_letter,
    is_gone,
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
    value_of,
    values,
)

MEGABYTE = 1024 * 1024


class Batches(StoreCase):
    """Puts are stored all or none."""

    def test_a_batch_is_stored_in_its_order(self, store: QueueStore) -> None:
        answers = store.enqueue_many([new_put(number) for number in range(50)], now=NOW)

        assert values(enqueued.message for enqueued in answers) == list(range(50))
        assert values(lease(store, 50)) == list(range(50))

    def test_a_batch_may_name_several_queues(self, store: QueueStore) -> None:
        store.enqueue_many([new_put("a", queue="a"), new_put("b", queue="b")], now=NOW)

        assert values(lease(store, 9, queue="a")) == ["a"]
        assert values(lease(store, 9, queue="b")) == ["b"]

    def test_an_empty_batch_does_nothing(self, store: QueueStore) -> None:
        assert store.enqueue_many([], now=NOW) == []
        assert store.ack_many([], now=NOW) == []
        assert store.settle_and_lease([], None, now=NOW) == ([], [])

    @pytest.mark.parametrize(
        "bad",
        [new_put(priority=1), new_put(ordering_key="k"), new_put(queue="a:b")],
        ids=["priority on a fifo queue", "ordering key on a fifo queue", "bad name"],
    )
    def test_one_put_that_cannot_be_stored_refuses_the_whole_batch(
        self, store: QueueStore, bad: Put
    ) -> None:
        put(store, "before")

        with pytest.raises((InvalidMessage, InvalidArgument)):
            store.enqueue_many([new_put("good"), bad, new_put("good too")], now=NOW)

        assert values(lease(store, 9)) == ["before"]

    def test_a_batch_of_too_many_messages_is_refused(self, store: QueueStore) -> None:
        with pytest.raises(InvalidMessage):
            put_all(store, [0] * (LARGEST_BATCH + 1))

        assert store.qsize(QUEUE, now=NOW) == 0

    def test_a_batch_of_too_many_bytes_is_refused(self, store: QueueStore) -> None:
        with pytest.raises(InvalidMessage):
            put_all(store, ["x" * (6 * MEGABYTE)] * 3)

        assert store.qsize(QUEUE, now=NOW) == 0

    @pytest.mark.parametrize("name", ["", "a:b", " a", "a\n", "x" * 201])
    def test_a_name_that_cannot_be_a_queues_is_refused_by_writes_and_empty_for_reads(
        self, store: QueueStore, name: str
    ) -> None:
        with pytest.raises(InvalidArgument):
            put(store, queue=name)
        with pytest.raises(InvalidArgument):
            store.configure(name, {}, now=NOW)

        assert lease(store, 1, queue=name) == []
        assert store.qsize(name, now=NOW) == 0
        assert store.settings(name) is None
        assert store.queues() == []

    def test_what_was_put_with_a_message_comes_back_with_it(self, store: QueueStore) -> None:
        raw = Put(QUEUE, b"\x00\xff", "bytes", headers=b'{"trace":"1"}', dedupe_key="k")

        [enqueued] = store.enqueue_many([raw], now=NOW)

        leased = lease_one(store)
        for message in (enqueued.message, leased, read(store, leased)):
            assert message.body == b"\x00\xff"
            assert message.codec == "bytes"
            assert message.headers == b'{"trace":"1"}'
            assert message.dedupe_key == "k"
            assert message.created_at == NOW
            assert not message.damaged

    def test_a_message_copied_from_another_store_keeps_its_id(self, store: QueueStore) -> None:
        theirs = "feedc0de" * 4

        assert put(store, "copied", id=theirs).id == theirs

        leased = lease_one(store)
        assert leased.id == theirs
        assert value_of(read(store, leased)) == "copied"
        assert ack(store, leased) == [True]
        assert store.read(QUEUE, theirs) is None


class Leases(StoreCase):
    """A message has one owner at a time, and the owner can be told from those before."""

    def test_tokens_grow_with_every_delivery(self, store: QueueStore) -> None:
        put_all(store, range(3))

        tokens = [message.token for message in lease(store, 3, timeout=10.0)]
        tokens += [message.token for message in lease(store, 3, now=NOW + 11)]

        assert tokens == sorted(set(tokens))
        assert tokens[0] > 0

    def test_a_lease_that_ran_out_unnoticed_can_still_be_settled_by_its_holder(
        self, store: QueueStore
    ) -> None:
        put_all(store, range(4))
        first, second, third, fourth = lease(store, 4, timeout=10.0)
        late = NOW + 60

        assert ack(store, first, now=late) == [True]
        assert release(store, second, error=BOOM, now=late) == [True]
        assert dead_letter(store, third, now=late) == [True]
        held = store.extend([receipt(fourth)], timeout=30.0, now=late)

        assert held == [LeaseAnswer.HELD]
        assert read(store, fourth).leased_until == late + 30
        assert values(lease(store, 4, now=late + 1)) == [1]

    def test_a_lease_over_several_queues_fills_up_from_the_later_ones(
        self, store: QueueStore
    ) -> None:
        put_all(store, ["a"], queue="a")
        put_all(store, ["c1", "c2"], queue="c")

        leased = lease(store, 2, queue=("a", "b", "c"))

        assert [(message.queue, value_of(message)) for message in leased] == [
            ("a", "a"),
            ("c", "c1"),
        ]

    def test_a_paused_queue_among_several_is_passed_over(self, store: QueueStore) -> None:
        put(store, "a", queue="a")
        put(store, "b", queue="b")
        store.configure("a", {"paused": True}, now=NOW)

        assert values(lease(store, 9, queue=("a", "b"))) == ["b"]

    def test_a_lease_of_many_stops_before_it_holds_too_many_bytes(self, store: QueueStore) -> None:
        for number in range(3):
            put(store, str(number) * (6 * MEGABYTE))

        assert len(lease(store, 10)) == 2
        assert len(lease(store, 10)) == 1

    def test_a_single_message_is_leased_however_large_it_is(self, store: QueueStore) -> None:
        put(store, "x" * (15 * MEGABYTE))
        put(store, "x" * (15 * MEGABYTE))

        assert len(lease(store, 10)) == 1

    def test_threads_never_lease_the_same_message(self, store: QueueStore) -> None:
        put_all(store, range(200))
        taken: list[list[int]] = [[] for _ in range(4)]

        def work(mine: list[int]) -> None:
            while leased := lease(store, 3, timeout=1000.0):
                mine.extend(values(leased))

        threads = [threading.Thread(target=work, args=(mine,)) for mine in taken]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sorted(chain.from_iterable(taken)) == list(range(200))

    def test_however_many_leases_ran_out_one_call_finds_them(self, store: QueueStore) -> None:
        put_all(store, range(600))
        lease(store, 600, timeout=10.0)

        assert store.qsize(QUEUE, now=NOW + 11) == 600
        assert len(lease(store, 600, now=NOW + 11)) == 600

    def test_reading_a_message_does_not_lease_it(self, store: QueueStore) -> None:
        message = put(store)

        assert read(store, message).attempts == 0
        assert read(store, message).state == "ready"
        assert lease_one(store).attempts == 1

    def test_peeking_shows_the_next_messages_in_delivery_order(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"ordering": "priority"}, now=NOW)
        put(store, "low")
        put(store, "later", delay=60.0)
        put(store, "high", priority=2)

        shown = store.peek(QUEUE, 9, now=NOW + 1)

        assert values(shown) == ["high", "low"]
        assert values(store.peek(QUEUE, 1, now=NOW + 1)) == ["high"]
        assert values(lease(store, 9, now=NOW + 1)) == ["high", "low"]
        assert store.peek(QUEUE, 9, now=NOW + 1) == []

    def test_peeking_shows_what_a_lease_would_find_now(self, store: QueueStore) -> None:
        put(store, "abandoned")
        lease_one(store, timeout=5.0)
        put(store, "due at 2", delay=2.0)
        put(store, "put at 1", now=NOW + 1)

        shown = store.peek(QUEUE, 9, now=NOW + 6)

        assert values(shown) == ["put at 1", "due at 2", "abandoned"]
        assert values(lease(store, 9, now=NOW + 6)) == values(shown)

    def test_expired_messages_do_not_use_up_what_a_peek_shows(self, store: QueueStore) -> None:
        put(store, "expired", ttl=5.0)
        put(store, "good")

        assert values(store.peek(QUEUE, 1, now=NOW + 6)) == ["good"]


class Extensions(StoreCase):
    """Heartbeats: a lease is held, lost, or asked to stop."""

    def test_an_extended_lease_is_held_for_longer(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store, timeout=30.0)

        answers = store.extend([receipt(leased)], timeout=60.0, now=NOW + 20)

        assert answers == [LeaseAnswer.HELD]
        assert read(store, leased).leased_until == NOW + 80
        assert lease(store, 1, now=NOW + 79) == []
        assert len(lease(store, 1, now=NOW + 81)) == 1

    def test_an_extension_may_also_shorten_the_lease(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store, timeout=300.0)

        store.extend([receipt(leased)], timeout=5.0, now=NOW)

        assert len(lease(store, 1, now=NOW + 6)) == 1

    def test_an_extended_lease_keeps_its_receipt(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store)
        store.extend([receipt(leased)], timeout=60.0, now=NOW)

        assert ack(store, leased) == [True]

    def test_extending_answers_one_by_one(self, store: QueueStore) -> None:
        put_all(store, range(3))
        lost, held, asked = lease(store, 3)
        ack(store, lost)
        store.cancel(QUEUE, asked.id, now=NOW)

        receipts = [receipt(lost), receipt(held), receipt(asked), Receipt(QUEUE, "0" * 32, 1)]
        answers = store.extend(receipts, timeout=30.0, now=NOW + 1)

        assert answers == [
            LeaseAnswer.LOST,
            LeaseAnswer.HELD,
            LeaseAnswer.CANCEL_ASKED,
            LeaseAnswer.LOST,
        ]

    def test_a_lease_that_someone_else_has_taken_is_lost(self, store: QueueStore) -> None:
        put(store)
        old = lease_one(store, timeout=10.0)
        new = lease_one(store, now=NOW + 11, timeout=10.0)

        answers = store.extend([receipt(old)], timeout=500.0, now=NOW + 12)

        assert answers == [LeaseAnswer.LOST]
        assert read(store, new).leased_until == NOW + 21

    def test_a_released_lease_is_lost(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store)
        release(store, leased)

        assert store.extend([receipt(leased)], timeout=30.0, now=NOW) == [LeaseAnswer.LOST]
        assert read(store, leased).state == "ready"


class Receipts(StoreCase):
    """Each verb asks who is speaking."""

    def test_a_receipt_of_a_later_delivery_than_any_is_refused(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store)
        forged = Receipt(QUEUE, leased.id, leased.token + 1)

        assert store.ack_many([forged], now=NOW) == [False]
        assert read(store, leased).state == "inflight"

    def test_a_receipt_does_not_open_another_queue(self, store: QueueStore) -> None:
        put(store)
        put(store, queue="other")
        leased = lease_one(store)

        assert store.ack_many([Receipt("other", leased.id, leased.token)], now=NOW) == [False]
        assert store.ack_many([Receipt("nowhere", leased.id, leased.token)], now=NOW) == [False]
        assert read(store, leased).state == "inflight"

    @pytest.mark.parametrize("identifier", ["", "0" * 32, "not hex", "f" * 32, "F" * 31, "1"])
    def test_an_id_that_nobody_has_settles_nothing(
        self, store: QueueStore, identifier: str
    ) -> None:
        put(store)
        unknown = Receipt(QUEUE, identifier, None)

        assert store.ack_many([unknown], now=NOW) == [False]
        assert store.release_many([unknown], now=NOW) == [False]
        assert store.dead_letter_many([unknown], now=NOW) == [False]
        assert store.requeue_dead_many(QUEUE, [identifier], now=NOW) == [False]
        assert store.cancel(QUEUE, identifier, now=NOW) is Cancelled.UNKNOWN
        assert store.read(QUEUE, identifier) is None
        assert store.qsize(QUEUE, now=NOW) == 1

    def test_what_put_returned_acts_again_once_the_lease_has_ended(self, store: QueueStore) -> None:
        message = put(store)
        release(store, lease_one(store))

        assert ack(store, message) == [True]

    def test_what_put_returned_may_acknowledge_a_dead_letter(self, store: QueueStore) -> None:
        dead = put_dead(store)

        assert ack(store, never_leased(dead)) == [True]
        assert is_gone(store, dead)

    def test_an_operators_dead_letter_ends_the_current_lease(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store)

        assert dead_letter(store, operator(leased), error=BOOM) == [True]
        assert ack(store, leased) == [False]
        assert store.extend([receipt(leased)], timeout=30.0, now=NOW) == [LeaseAnswer.LOST]
        assert read(store, leased).state == "dead"

    def test_an_operators_acknowledgement_removes_what_someone_is_running(
        self, store: QueueStore
    ) -> None:
        put(store)
        leased = lease_one(store)

        assert ack(store, operator(leased)) == [True]
        assert ack(store, leased) == [False]
        assert release(store, leased) == [False]
        assert is_gone(store, leased)

    def test_releasing_a_waiting_message_sets_its_time_anew(self, store: QueueStore) -> None:
        delayed = put(store, "delayed", delay=1000.0)
        ready = put(store, "ready")

        assert release(store, never_leased(delayed), now=NOW + 1) == [True]
        assert release(store, operator(ready), delay=60.0, now=NOW + 1) == [True]

        assert values(lease(store, 2, now=NOW + 2)) == ["delayed"]
        assert read(store, ready).available_at == NOW + 61
        assert read(store, ready).attempts == 0

    def test_a_batch_of_receipts_releases_only_what_they_hold(self, store: QueueStore) -> None:
        put_all(store, range(3))
        first, second, third = lease(store, 3)
        ack(store, second)

        assert release(store, first, second, third, error=BOOM) == [True, False, True]
        assert store.qsize(QUEUE, now=NOW) == 2

    def test_a_batch_of_receipts_may_be_of_several_queues(self, store: QueueStore) -> None:
        put_all(store, range(2), queue="a")
        put_all(store, range(2), queue="b")
        leased = lease(store, 4, queue=("a", "b"))

        assert ack(store, *leased) == [True] * 4
        assert store.stats("a", now=NOW).total == 0
        assert store.stats("b", now=NOW).total == 0

    def test_a_batch_of_acknowledgements_frees_every_key(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"ordering": "per-key"}, now=NOW)
        for key in ("a", "b"):
            put(store, "head", dedupe_key=key, ordering_key=key)
            put(store, "next", ordering_key=key)
        heads = lease(store, 9)

        assert ack(store, *heads) == [True, True]

        assert values(lease(store, 9)) == ["next", "next"]
        assert answer(store, dedupe_key="a").fate is Fate.STORED
        assert answer(store, dedupe_key="b").fate is Fate.STORED

    def test_a_batch_of_stale_and_good_receipts_settles_the_good_ones(
        self, store: QueueStore
    ) -> None:
        put_all(store, range(4))
        leased = lease(store, 4, timeout=10.0)
        again = lease(store, 2, now=NOW + 11)

        answers = ack(store, *leased, *again, now=NOW + 12)

        assert answers == [False, False, False, False, True, True]
        assert store.qsize(QUEUE, now=NOW + 12) == 2

    def test_the_same_receipt_twice_in_a_batch_acts_once(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store)

        assert ack(store, leased, leased) == [True, False]


class Cancellation(StoreCase):
    """Taking back what was put."""

    @pytest.mark.parametrize("delay", [0.0, 60.0], ids=["ready", "delayed"])
    def test_a_cancelled_message_never_comes(self, store: QueueStore, delay: float) -> None:
        message = put(store, delay=delay)

        assert store.cancel(QUEUE, message.id, now=NOW) is Cancelled.REMOVED
        assert store.cancel(QUEUE, message.id, now=NOW) is Cancelled.UNKNOWN
        assert lease(store, 1, now=NOW + 1000) == []
        assert store.stats(QUEUE, now=NOW).total == 0

    def test_a_running_message_is_asked_to_stop_and_not_taken_away(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store)

        assert store.cancel(QUEUE, leased.id, now=NOW) is Cancelled.ASKED

        asked = [LeaseAnswer.CANCEL_ASKED]
        assert store.extend([receipt(leased)], timeout=30.0, now=NOW + 1) == asked
        assert store.extend([receipt(leased)], timeout=30.0, now=NOW + 2) == asked
        assert ack(store, leased, now=NOW + 3) == [True]

    def test_an_extension_that_is_asked_to_stop_holds_the_lease_all_the_same(
        self, store: QueueStore
    ) -> None:
        put(store)
        leased = lease_one(store, timeout=30.0)
        store.cancel(QUEUE, leased.id, now=NOW)

        store.extend([receipt(leased)], timeout=30.0, now=NOW + 20)

        assert lease(store, 1, now=NOW + 45) == []

    @pytest.mark.parametrize("end", ["release", "expiry"])
    def test_the_next_delivery_is_not_asked_to_stop(self, store: QueueStore, end: str) -> None:
        put(store)
        leased = lease_one(store, timeout=10.0)
        store.cancel(QUEUE, leased.id, now=NOW)
        if end == "release":
            release(store, leased)

        again = lease_one(store, now=NOW + 11)

        held = store.extend([receipt(again)], timeout=30.0, now=NOW + 12)
        assert held == [LeaseAnswer.HELD]

    def test_a_message_is_cancelled_only_in_its_own_queue(self, store: QueueStore) -> None:
        message = put(store)
        put(store, queue="other")

        assert store.cancel("other", message.id, now=NOW) is Cancelled.UNKNOWN
        assert store.cancel("nowhere", message.id, now=NOW) is Cancelled.UNKNOWN
        assert not is_gone(store, message)


class Closing(StoreCase):
    """A closed store is closed."""

    def test_a_closed_store_says_so(self, store: QueueStore) -> None:
        put(store)
        store.close()
        store.close()

        for use in (
            lambda: put(store),
            lambda: lease(store, 1),
            lambda: store.stats(QUEUE, now=NOW),
            lambda: store.journal(),
            lambda: store.load_record("kind", "key", now=NOW),
        ):
            with pytest.raises(StoreClosed):
                use()

    def test_messages_survive_closing(self, store: QueueStore) -> None:
        put_all(store, range(3))
        put(store, "later", delay=60.0)
        leased = lease_one(store, timeout=1000.0)
        dead = put_dead(store, error=BOOM)

        again = self.reopened(store)

        assert values(lease(again, 9, now=NOW + 1, timeout=1000.0)) == [1, 2]
        assert values(lease(again, 9, now=NOW + 61)) == ["later"]
        assert values(again.dead_letters(QUEUE)) == [value_of(dead)]
        assert ack(again, leased, now=NOW + 62) == [True]

    def test_ids_and_tokens_go_on_after_a_reopening(self, store: QueueStore) -> None:
        put(store)
        before = lease_one(store)
        ack(store, before)

        again = self.reopened(store)
        put(again)
        after = lease_one(again)

        assert after.id != before.id
        assert after.token > before.token
