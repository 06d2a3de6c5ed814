"""One key, one message, while its record lives; one request, one message, for a day."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from localqueue.errors import DuplicateConflict
from localqueue.stores.protocol import REQUEST_ID_WINDOW, Fate, QueueStore
from localqueue.testing.store_contract.phrases import (
    BOOM,
    NOW,
    QUEUE,
    StoreCase,
    ack,
    answer,
    body,
    dead_letter,
    drain,
    events,
    lease,
    lease_one,
    new_put,
    put,
    release,
    value_of,
)


def _leave_waiting(store: QueueStore) -> None:
    pass


def _lease_it(store: QueueStore) -> None:
    lease_one(store, timeout=1000.0)


def _release_it(store: QueueStore) -> None:
    release(store, lease_one(store), delay=60.0, error=BOOM)


def _dead_letter_it(store: QueueStore) -> None:
    dead_letter(store, lease_one(store), error=BOOM)


def _requeue_it(store: QueueStore) -> None:
    _dead_letter_it(store)
    store.requeue_dead_many(QUEUE, [store.dead_letters(QUEUE)[0].id], now=NOW)


def _ack_it(store: QueueStore) -> None:
    ack(store, lease_one(store))


def _take_it_away(store: QueueStore) -> None:
    lease_one(store, remove=True)


def _cancel_it(store: QueueStore) -> None:
    store.cancel(QUEUE, store.peek(QUEUE, 1, now=NOW)[0].id, now=NOW)


def _prune_it(store: QueueStore) -> None:
    _dead_letter_it(store)
    assert store.prune_dead_letters(QUEUE, older_than=0.0, now=NOW) == 1


def _purge_it(store: QueueStore) -> None:
    store.purge(QUEUE, now=NOW)


STILL_THERE = [_leave_waiting, _lease_it, _release_it, _dead_letter_it, _requeue_it]
GONE = [_ack_it, _take_it_away, _cancel_it, _prune_it, _purge_it]


def _name(step: Callable[[QueueStore], None]) -> str:
    return step.__name__.strip("_").replace("_", " ")


class Deduplication(StoreCase):
    """A taken key is answered with the message that has it."""

    @pytest.mark.parametrize("step", STILL_THERE, ids=_name)
    def test_a_key_is_taken_while_its_message_is_there(
        self, store: QueueStore, step: Callable[[QueueStore], None]
    ) -> None:
        first = put(store, "first", dedupe_key="k")
        step(store)
        before = store.read(QUEUE, first.id)
        assert before is not None

        second = answer(store, "second", dedupe_key="k", now=NOW + 1)

        assert second.fate is Fate.DUPLICATE
        assert second.message.id == first.id
        assert value_of(second.message) == "first"
        assert second.message.state == before.state
        assert second.message.attempts == before.attempts
        assert second.message.last_error == before.last_error
        assert store.stats(QUEUE, now=NOW + 1).total == 1

    @pytest.mark.parametrize("step", GONE, ids=_name)
    def test_a_key_is_free_when_its_message_is_gone(
        self, store: QueueStore, step: Callable[[QueueStore], None]
    ) -> None:
        first = put(store, "first", dedupe_key="k")
        step(store)

        second = answer(store, "second", dedupe_key="k", now=NOW + 1)

        assert second.fate is Fate.STORED
        assert second.message.id != first.id
        assert drain(store, now=NOW + 2) == ["second"]

    def test_a_duplicate_changes_nothing_and_leaves_no_event(self, store: QueueStore) -> None:
        put(store, "first", dedupe_key="k", delay=5.0)
        end = store.journal_end()

        answer(store, "second", dedupe_key="k", delay=0.0, headers=b"{}")

        assert events(store, after=end) == []
        assert store.qsize(QUEUE, now=NOW) == 0
        assert lease_one(store, now=NOW + 5).headers is None

    def test_what_a_duplicate_answers_does_not_prove_a_lease(self, store: QueueStore) -> None:
        put(store, dedupe_key="k")
        leased = lease_one(store)

        duplicate = answer(store, dedupe_key="k").message

        assert ack(store, duplicate) == [False]
        assert ack(store, leased) == [True]

    def test_a_key_belongs_to_its_queue(self, store: QueueStore) -> None:
        put(store, dedupe_key="k")

        assert answer(store, dedupe_key="k", queue="other").fate is Fate.STORED

    def test_a_key_taken_twice_in_one_batch_is_one_message(self, store: QueueStore) -> None:
        first, second = store.enqueue_many(
            [new_put("first", dedupe_key="k"), new_put("second", dedupe_key="k")], now=NOW
        )

        assert (first.fate, second.fate) == (Fate.STORED, Fate.DUPLICATE)
        assert second.message.id == first.message.id
        assert drain(store) == ["first"]

    def test_a_refused_batch_does_not_take_its_keys(self, store: QueueStore) -> None:
        put(store, "taken", dedupe_key="taken")
        conflict = new_put("other", dedupe_key="taken", conflict_is_error=True)

        with pytest.raises(DuplicateConflict):
            store.enqueue_many([new_put("new", dedupe_key="new"), conflict], now=NOW)

        assert answer(store, "new", dedupe_key="new").fate is Fate.STORED
        assert drain(store) == ["taken", "new"]

    def test_a_taken_key_with_another_value_is_an_error_where_the_put_says_so(
        self, store: QueueStore
    ) -> None:
        put(store, {"a": 1}, dedupe_key="k")

        with pytest.raises(DuplicateConflict):
            put(store, {"a": 2}, dedupe_key="k", conflict_is_error=True)

        same = answer(store, {"a": 1}, dedupe_key="k", conflict_is_error=True)
        assert same.fate is Fate.DUPLICATE
        assert answer(store, {"a": 2}, dedupe_key="k").fate is Fate.DUPLICATE

    def test_two_values_under_one_key_in_a_batch_are_a_conflict_too(
        self, store: QueueStore
    ) -> None:
        puts = [new_put(n, dedupe_key="k", conflict_is_error=True) for n in range(2)]

        with pytest.raises(DuplicateConflict):
            store.enqueue_many(puts, now=NOW)

        assert store.qsize(QUEUE, now=NOW) == 0

    def test_keys_are_still_taken_after_a_reopening(self, store: QueueStore) -> None:
        put(store, dedupe_key="k")
        put(store, "window", dedupe_key="w", dedupe_window=60.0)
        drain(store)
        put(store, dedupe_key="k")

        again = self.reopened(store)

        assert answer(again, dedupe_key="k", now=NOW + 1).fate is Fate.DUPLICATE
        assert answer(again, dedupe_key="w", now=NOW + 1).fate is Fate.DUPLICATE


class DedupeWindows(StoreCase):
    """A window keeps a key taken after its message is gone."""

    def test_a_key_stays_taken_for_its_window(self, store: QueueStore) -> None:
        first = put(store, "first", dedupe_key="k", dedupe_window=60.0)
        ack(store, lease_one(store))

        second = answer(store, "second", dedupe_key="k", dedupe_window=60.0, now=NOW + 59)

        assert second.fate is Fate.DUPLICATE
        assert second.message.id == first.id
        assert second.message.body == body("second")
        assert (second.message.state, second.message.attempts) == ("ready", 0)
        assert store.stats(QUEUE, now=NOW + 59).total == 0

    def test_a_key_is_free_after_its_window(self, store: QueueStore) -> None:
        first = put(store, "first", dedupe_key="k", dedupe_window=60.0)
        ack(store, lease_one(store))

        second = answer(store, "second", dedupe_key="k", dedupe_window=60.0, now=NOW + 61)

        assert second.fate is Fate.STORED
        assert second.message.id != first.id

    def test_a_duplicate_does_not_prolong_the_window(self, store: QueueStore) -> None:
        put(store, dedupe_key="k", dedupe_window=60.0)
        ack(store, lease_one(store))
        answer(store, dedupe_key="k", dedupe_window=60.0, now=NOW + 50)

        assert answer(store, dedupe_key="k", now=NOW + 61).fate is Fate.STORED

    def test_a_key_outlives_its_window_with_its_message(self, store: QueueStore) -> None:
        put(store, dedupe_key="k", dedupe_window=60.0)
        lease(store, 1, queue="other", now=NOW + 100)

        assert answer(store, dedupe_key="k", now=NOW + 101).fate is Fate.DUPLICATE
        ack(store, lease_one(store, now=NOW + 102), now=NOW + 102)
        assert answer(store, dedupe_key="k", now=NOW + 103).fate is Fate.STORED

    def test_a_conflict_is_recognised_within_the_window(self, store: QueueStore) -> None:
        put(store, "first", dedupe_key="k", dedupe_window=60.0)
        ack(store, lease_one(store))

        with pytest.raises(DuplicateConflict):
            put(store, "second", dedupe_key="k", conflict_is_error=True, now=NOW + 1)
        same = answer(store, "first", dedupe_key="k", conflict_is_error=True, now=NOW + 1)

        assert same.fate is Fate.DUPLICATE

    def test_purging_forgets_windows(self, store: QueueStore) -> None:
        put(store, dedupe_key="k", dedupe_window=60.0)
        ack(store, lease_one(store))

        store.purge(QUEUE, now=NOW)

        assert answer(store, dedupe_key="k", now=NOW + 1).fate is Fate.STORED


class RequestIds(StoreCase):
    """A put that is sent again because its answer was lost is not a second message."""

    def test_a_repeated_request_is_one_message(self, store: QueueStore) -> None:
        first = put(store, "a", request_id="r")

        second = answer(store, "a", request_id="r", now=NOW + 1)

        assert second.fate is Fate.DUPLICATE
        assert second.message.id == first.id
        assert drain(store, now=NOW + 1) == ["a"]

    def test_a_request_is_remembered_for_a_day_also_when_its_message_is_gone(
        self, store: QueueStore
    ) -> None:
        first = put(store, "a", request_id="r")
        ack(store, lease_one(store))

        within = answer(store, "a", request_id="r", now=NOW + REQUEST_ID_WINDOW - 1)
        after = answer(store, "a", request_id="r", now=NOW + REQUEST_ID_WINDOW + 1)

        assert within.fate is Fate.DUPLICATE
        assert within.message.id == first.id
        assert after.fate is Fate.STORED

    def test_request_ids_and_dedupe_keys_are_different_things(self, store: QueueStore) -> None:
        put(store, "by key", dedupe_key="same")

        assert answer(store, "by request", request_id="same").fate is Fate.STORED

    def test_a_request_belongs_to_its_queue(self, store: QueueStore) -> None:
        put(store, request_id="r")

        assert answer(store, request_id="r", queue="other").fate is Fate.STORED

    def test_a_request_repeated_in_one_batch_is_one_message(self, store: QueueStore) -> None:
        answers = store.enqueue_many([new_put("a", request_id="r")] * 2, now=NOW)

        assert [enqueued.fate for enqueued in answers] == [Fate.STORED, Fate.DUPLICATE]
        assert drain(store) == ["a"]

    def test_a_repeated_request_of_a_full_queue_is_answered(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"maxsize": 1, "overflow": "reject"}, now=NOW)
        put(store, request_id="r")

        assert answer(store, request_id="r").fate is Fate.DUPLICATE

    def test_purging_forgets_requests(self, store: QueueStore) -> None:
        put(store, request_id="r")
        store.purge(QUEUE, now=NOW)

        assert answer(store, request_id="r", now=NOW + 1).fate is Fate.STORED
