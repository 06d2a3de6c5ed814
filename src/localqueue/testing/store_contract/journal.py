"""What happened, in commit order: every transition, once, with what is needed to understand it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from localqueue.errors import JournalForeign, JournalTrimmed
from localqueue.outcome import Ack
from localqueue.stores.protocol import JournalEvent, QueueStore, Settle
from localqueue.testing.store_contract.phrases import (
    BOOM,
    LIVE_STATES,
    NOW,
    QUEUE,
    StoreCase,
    ack,
    answer,
    body,
    dead_letter,
    drain,
    events,
    kinds,
    lease,
    lease_one,
    never_leased,
    new_put,
    operator,
    put,
    put_all,
    put_dead,
    receipt,
    release,
)

DAY = 86_400.0


def _since(store: QueueStore, act: Callable[[], Any]) -> list[JournalEvent]:
    """The events that this brings about."""
    end = store.journal_end()
    act()
    return events(store, after=end)


def _everything(store: QueueStore) -> list[JournalEvent]:
    """The journal with its own bookkeeping."""
    return _pages(store, [QUEUE], 1_000)


def _pages(store: QueueStore, queues: list[str] | None, limit: int) -> list[JournalEvent]:
    found: list[JournalEvent] = []
    while page := store.journal(queues, after=found[-1].position if found else None, limit=limit):
        found += page
    return found


def _one(found: list[JournalEvent], kind: str) -> JournalEvent:
    [event] = [event for event in found if event.kind == kind]
    return event


class JournalKinds(StoreCase):
    """Each verb leaves its event, and nothing else."""

    def test_a_put_is_enqueued(self, store: QueueStore) -> None:
        put(store)
        message = None

        def act() -> None:
            nonlocal message
            message = put(store, now=NOW + 1)

        [event] = _since(store, act)

        assert message is not None
        assert event.kind == "enqueued"
        assert (event.queue, event.message_id, event.at) == (QUEUE, message.id, NOW + 1)
        assert (event.from_state, event.to_state, event.n) == (None, "ready", 1)
        assert event.by == "worker"

    def test_a_delayed_put_and_its_promotion(self, store: QueueStore) -> None:
        put(store)
        [event] = _since(store, lambda: put_all(store, [1], delay=10.0))
        put_all(store, [2, 3], delay=10.0)

        found = _since(store, lambda: lease(store, 9, now=NOW + 10))

        assert (event.kind, event.to_state) == ("enqueued", "delayed")
        promoted = [event for event in found if event.kind == "promoted"]
        assert sum(event.n for event in promoted) == 3
        assert {(event.from_state, event.to_state) for event in promoted} == {("delayed", "ready")}
        assert {event.by for event in promoted} == {"sweep"}
        assert kinds(found).count("leased") == 4

    def test_a_held_put_and_its_promotion(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"ordering": "per-key"}, now=NOW)
        put(store, ordering_key="k")
        [event] = _since(store, lambda: put(store, ordering_key="k"))
        head = lease_one(store)

        found = _since(store, lambda: ack(store, head))

        assert (event.kind, event.to_state) == ("enqueued", "held")
        assert sorted(kinds(found)) == ["acked", "promoted"]
        promoted = _one(found, "promoted")
        assert (promoted.from_state, promoted.to_state) == ("held", "ready")
        assert promoted.message_id == event.message_id

    def test_a_lease(self, store: QueueStore) -> None:
        message = put(store)

        [event] = _since(store, lambda: lease_one(store, worker="w1", now=NOW + 1))

        assert event.kind == "leased"
        assert (event.message_id, event.attempt, event.worker) == (message.id, 1, "w1")
        assert (event.from_state, event.to_state) == ("ready", "inflight")

    def test_an_empty_lease_leaves_no_event(self, store: QueueStore) -> None:
        put(store, delay=60.0)

        assert _since(store, lambda: lease(store, 9)) == []

    def test_an_acknowledgement_tells_how_long_it_took(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store, worker="w1", now=NOW + 5)

        [event] = _since(store, lambda: ack(store, leased, now=NOW + 8))

        assert event.kind == "acked"
        assert (event.from_state, event.to_state) == ("inflight", None)
        assert (event.attempt, event.worker, event.by) == (1, "w1", "worker")
        assert (event.enqueued_at, event.leased_at) == (NOW, NOW + 5)
        assert event.waited == pytest.approx(5.0)
        assert event.ran == pytest.approx(3.0)

    def test_a_refused_receipt_leaves_no_event(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store)
        release(store, leased)

        assert _since(store, lambda: (ack(store, leased), release(store, leased))) == []
        settle = Settle(receipt(leased), Ack(), puts=(new_put(),))
        assert _since(store, lambda: store.settle(settle, now=NOW)) == []

    def test_a_release_with_its_error(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store, worker="w1", now=NOW + 1)

        [event] = _since(store, lambda: release(store, leased, error=BOOM, now=NOW + 3))

        assert event.kind == "released"
        assert (event.from_state, event.to_state) == ("inflight", "ready")
        assert (event.attempt, event.worker) == (1, "w1")
        assert (event.error_type, event.error_text) == ("ValueError", "boom")
        assert event.ran == pytest.approx(2.0)

    def test_a_release_with_a_delay(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store)

        [event] = _since(store, lambda: release(store, leased, delay=5.0))

        assert (event.kind, event.to_state) == ("released", "delayed")
        assert event.error_type is None

    def test_errors_that_differ_in_numbers_have_one_fingerprint(self, store: QueueStore) -> None:
        put_all(store, range(3))
        first, second, third = lease(store, 3)
        release(store, first, error={"type": "E", "message": "order 17 at 0xff12"})
        release(store, second, error={"type": "E", "message": "order 4 at 0x01"})
        release(store, third, error={"type": "F", "message": "order 4 at 0x01"})

        marks = [event.fingerprint for event in events(store) if event.kind == "released"]

        assert marks[0] is not None
        assert marks[0] == marks[1]
        assert marks[0] != marks[2]

    def test_a_long_error_is_cut(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store)

        [event] = _since(
            store, lambda: release(store, leased, error={"type": "E", "message": "x" * 10_000})
        )

        assert event.error_text == "x" * 500

    def test_a_lease_that_ran_out(self, store: QueueStore) -> None:
        put(store)
        lease_one(store, worker="w1", timeout=10.0)

        found = _since(store, lambda: lease(store, 1, now=NOW + 11))

        assert kinds(found) == ["lease_expired", "leased"]
        assert (found[0].from_state, found[0].to_state) == ("inflight", "ready")
        assert (found[0].by, found[0].worker, found[0].attempt) == ("sweep", "w1", 1)

    def test_one_crash_too_many(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"crash_limit": 1}, now=NOW)
        put(store)
        lease_one(store, timeout=10.0, liveness="worker-1")

        found = _since(store, lambda: lease(store, 1, now=NOW + 11))

        event = _one(found, "dead_lettered")
        assert (event.from_state, event.to_state, event.by) == ("inflight", "dead", "sweep")
        assert event.error_type == "CrashLimitExceeded"

    def test_an_extension(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store)

        [event] = _since(store, lambda: store.extend([receipt(leased)], timeout=60.0, now=NOW + 1))

        assert (event.kind, event.message_id) == ("extended", leased.id)
        assert (event.from_state, event.to_state) == ("inflight", "inflight")

    def test_a_dead_letter_and_its_requeueing(self, store: QueueStore) -> None:
        put(store)
        leased = lease_one(store)

        [dead] = _since(store, lambda: dead_letter(store, leased, error=BOOM))
        [back] = _since(store, lambda: store.requeue_dead_many(QUEUE, [leased.id], now=NOW))

        assert (dead.kind, dead.to_state, dead.error_type) == (
            "dead_lettered",
            "dead",
            "ValueError",
        )
        assert (back.kind, back.from_state, back.to_state) == ("requeued", "dead", "ready")

    @pytest.mark.parametrize(
        ("on_expiry", "end"), [("drop", None), ("dead-letter", "dead")], ids=["drop", "bury"]
    )
    def test_an_expiry(self, store: QueueStore, on_expiry: str, end: str | None) -> None:
        store.configure(QUEUE, {"on_expiry": on_expiry}, now=NOW)
        message = put(store, ttl=10.0)

        [event] = _since(store, lambda: lease(store, 1, now=NOW + 11))

        assert (event.kind, event.message_id, event.by) == ("expired", message.id, "sweep")
        assert (event.from_state, event.to_state) == ("ready", end)

    def test_a_cancellation(self, store: QueueStore) -> None:
        waiting = put(store)
        [event] = _since(store, lambda: store.cancel(QUEUE, waiting.id, now=NOW))
        put(store)
        leased = lease_one(store)
        [asked] = _since(store, lambda: store.cancel(QUEUE, leased.id, now=NOW))

        assert (event.kind, event.message_id, event.to_state) == ("cancelled", waiting.id, None)
        assert (asked.kind, asked.message_id) == ("cancel_asked", leased.id)
        assert asked.from_state == asked.to_state

    def test_a_dropped_newest_message(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"maxsize": 1, "overflow": "drop-newest"}, now=NOW)
        put(store)
        dropped = []

        [event] = _since(store, lambda: dropped.append(answer(store, "dropped").message))

        assert (event.kind, event.message_id) == ("dropped", dropped[0].id)
        assert (event.from_state, event.to_state) == (None, None)

    def test_a_dropped_oldest_message(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"maxsize": 1, "overflow": "drop-oldest"}, now=NOW)
        oldest = put(store)

        found = _since(store, lambda: put(store, "newest"))

        assert kinds(found) == ["dropped", "enqueued"]
        assert found[0].message_id == oldest.id
        assert (found[0].from_state, found[0].to_state) == ("ready", None)

    def test_a_message_that_did_not_fit_is_born_dead(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"maxsize": 1, "overflow": "overflow"}, now=NOW)
        put(store)

        [event] = _since(store, lambda: put(store, "does not fit"))

        assert (event.kind, event.to_state, event.error_type) == ("enqueued", "dead", "QueueFull")

    def test_pruned_dead_letters_leave_the_counts(self, store: QueueStore) -> None:
        dead_letter(store, *(never_leased(message) for message in put_all(store, range(3))))

        found = _since(store, lambda: store.prune_dead_letters(QUEUE, older_than=0, now=NOW + 1))

        assert sum(event.n for event in found) == 3
        assert {(event.from_state, event.to_state) for event in found} == {("dead", None)}

    def test_a_purge_tells_how_many_of_each_state(self, store: QueueStore) -> None:
        put_all(store, range(5))
        put_all(store, range(2), delay=60.0)
        lease_one(store)
        put_dead(store)

        found = _since(store, lambda: store.purge(QUEUE, now=NOW + 1))

        assert set(kinds(found)) == {"purged"}
        counted = {event.from_state: event.n for event in found if event.n}
        assert counted == {"ready": 4, "delayed": 2, "inflight": 1, "dead": 1}

    def test_a_removing_lease_is_an_acknowledgement(self, store: QueueStore) -> None:
        put(store)

        found = _since(store, lambda: lease_one(store, worker="w1", remove=True))

        assert kinds(found) == ["leased", "acked"]

    def test_a_configuration_tells_what_changed(self, store: QueueStore) -> None:
        put(store)

        [event] = _since(
            store,
            lambda: store.configure(QUEUE, {"maxsize": 7}, now=NOW + 1, by="operator"),
        )

        assert (event.kind, event.queue, event.by) == ("configured", QUEUE, "operator")
        assert event.detail == {"maxsize": 7}

    def test_a_configuration_that_changes_nothing_leaves_no_event(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"maxsize": 7}, now=NOW)

        again = _since(store, lambda: store.configure(QUEUE, {"maxsize": 7}, now=NOW + 1))

        assert again == []

    def test_subscriptions_and_publications(self, store: QueueStore) -> None:
        store.configure("news", {"fanout": "cursor"}, now=NOW)
        found = _since(store, lambda: store.subscribe("news", "a", now=NOW))
        assert _one(found, "subscribed").queue == "news"

        found = _since(store, lambda: put(store, queue="news"))
        assert _one(found, "published").queue == "news"

        found = _since(store, lambda: store.unsubscribe("news", "a", now=NOW))
        assert _one(found, "unsubscribed").queue == "news"

    def test_a_backlog_is_told_now_and_then_as_it_was_at_that_event(
        self, store: QueueStore
    ) -> None:
        _write_much(store, NOW)
        lease(store, 100, now=NOW + 1)
        _write_much(store, NOW + 2)

        told, seen = [], Counter[str | None]()
        for event in _everything(store):
            if event.kind == "counted":
                told.append((event.detail, {state: seen[state] for state in LIVE_STATES}))
            seen[event.from_state] -= event.n
            seen[event.to_state] += event.n

        assert told != []
        assert [detail for detail, _ in told] == [counted for _, counted in told]

    def test_what_an_operator_did_is_told_apart(self, store: QueueStore) -> None:
        put_all(store, range(3))
        first, second, third = lease(store, 3)

        found = _since(
            store,
            lambda: (
                ack(store, operator(first)),
                release(store, operator(second)),
                dead_letter(store, operator(third)),
            ),
        )

        assert kinds(found) == ["acked", "released", "dead_lettered"]
        assert {event.by for event in found} == {"operator"}


class JournalPositions(StoreCase):
    """Reading on from where one was."""

    def test_events_are_in_commit_order(self, store: QueueStore) -> None:
        put_all(store, range(3))
        ack(store, lease_one(store, now=NOW + 1), now=NOW + 2)

        found = events(store, [QUEUE])

        wanted = ["enqueued", "enqueued", "enqueued", "leased", "acked"]
        assert kinds(found)[-5:] == wanted
        assert [event.at for event in found[-5:]] == [NOW, NOW, NOW, NOW + 1, NOW + 2]

    def test_reading_goes_on_after_any_event(self, store: QueueStore) -> None:
        put_all(store, range(4))
        drain(store)
        everything = store.journal()

        for number, event in enumerate(everything):
            assert store.journal(after=event.position) == everything[number + 1 :]

    def test_a_page_has_no_more_than_its_limit(self, store: QueueStore) -> None:
        put_all(store, range(10))
        everything = store.journal()

        first = store.journal(limit=4)
        second = store.journal(after=first[-1].position, limit=4)

        assert first + second == everything[:8]

    def test_the_end_is_where_new_events_begin(self, store: QueueStore) -> None:
        put(store)
        end = store.journal_end()

        assert store.journal(after=end) == []
        put(store, "new")
        assert kinds(store.journal(after=end)) == ["enqueued"]

    def test_the_journal_of_a_new_store_has_an_end_too(self, store: QueueStore) -> None:
        end = store.journal_end()
        message = put(store)

        found = [event for event in store.journal(after=end) if event.kind == "enqueued"]

        assert [event.message_id for event in found] == [message.id]

    def test_events_of_some_queues_can_be_read_alone(self, store: QueueStore) -> None:
        for name in ("a", "b", "c", "a"):
            put(store, queue=name)

        found = store.journal(["a", "c"])

        assert [event.queue for event in found if event.kind == "enqueued"] == ["a", "c", "a"]
        assert {event.queue for event in found} == {"a", "c"}
        assert store.journal(["nowhere"]) == []
        assert store.journal([]) == []

    def test_a_page_of_some_queues_is_filled_with_their_events(self, store: QueueStore) -> None:
        put_all(store, range(50), queue="loud")
        put(store, queue="quiet")
        put_all(store, range(50), queue="loud")
        put(store, queue="quiet")

        found = store.journal(["quiet"], limit=2)
        rest = events(store, ["quiet"], after=found[-1].position)

        assert len(found) == 2
        assert kinds(found + rest).count("enqueued") == 2

    @pytest.mark.parametrize("queues", [["a"], ["a", "b"], ["b", QUEUE], ["nowhere", "a"]])
    def test_some_queues_are_told_page_by_page_as_they_are_among_all_others(
        self, store: QueueStore, queues: list[str]
    ) -> None:
        """However much the others have written before, between and after."""
        _write_much(store, NOW)
        for _ in range(3):
            put_all(store, range(2), queue="a")
            put(store, queue="b")
            _write_much(store, NOW)
            put(store, queue="a")
        everything = _pages(store, None, 5_000)
        told = [event for event in everything if event.queue in queues]

        assert _pages(store, queues, 50 if len(told) < 500 else 2_000) == told
        for number, event in enumerate(everything):
            if event.queue != QUEUE:
                after = [one for one in everything[number + 1 :] if one.queue in queues]
                assert store.journal(queues, after=event.position, limit=3) == after[:3]

    @pytest.mark.parametrize("position", ["", "nonsense", "-1", "é"])
    def test_what_is_no_position_is_foreign(self, store: QueueStore, position: str) -> None:
        put(store)

        with pytest.raises(JournalForeign):
            store.journal(after=position)

    def test_a_position_of_another_store_is_foreign(self, store: QueueStore) -> None:
        other = self.another()
        if other is None:
            pytest.skip("there is only one store of this kind")
        put_all(store, range(5))
        put(other)

        with pytest.raises(JournalForeign):
            store.journal(after=other.journal_end())
        with pytest.raises(JournalForeign):
            store.register_reader("r", position=other.journal_end(), now=NOW)

    def test_positions_are_good_after_a_reopening(self, store: QueueStore) -> None:
        put(store)
        end = store.journal_end()
        before = store.journal()

        again = self.reopened(store)
        put(again, "new")

        assert again.journal()[: len(before)] == before
        assert kinds(events(again, after=end)) == ["enqueued"]


class JournalHistory(StoreCase):
    """The life of one message."""

    def test_the_life_of_a_living_message(self, store: QueueStore) -> None:
        message = put(store)
        put(store, "other")
        release(store, lease_one(store, now=NOW + 1), error=BOOM, now=NOW + 2)
        lease(store, 2, now=NOW + 3)

        found = store.history(QUEUE, message.id)

        assert kinds(found) == ["enqueued", "leased", "released", "leased"]
        assert {event.message_id for event in found} == {message.id}
        assert [event.attempt for event in found[1:]] == [1, 1, 2]

    def test_the_life_of_a_message_that_is_gone(self, store: QueueStore) -> None:
        message = put(store)
        put(store, "other")
        ack(store, *lease(store, 2, now=NOW + 1), now=NOW + 2)

        assert kinds(store.history(QUEUE, message.id)) == ["enqueued", "leased", "acked"]

    def test_a_life_that_is_over_is_found_however_much_happened_since(
        self, store: QueueStore
    ) -> None:
        message = put(store)
        ack(store, lease_one(store, now=NOW + 1), now=NOW + 2)

        _write_much(store, NOW + 3)

        assert kinds(store.history(QUEUE, message.id)) == ["enqueued", "leased", "acked"]

    @pytest.mark.parametrize("much", [False, True], ids=["at once", "much later"])
    @pytest.mark.parametrize("fanout", ["copy", "cursor"])
    def test_every_subscriber_has_a_life_of_its_own(
        self, store: QueueStore, fanout: str, much: bool
    ) -> None:
        store.configure("topic", {"fanout": fanout}, now=NOW)
        for name in ("a", "b"):
            store.subscribe("topic", name, now=NOW)
        put(store, queue="topic")
        first = lease_one(store, queue="topic.a", now=NOW + 1)
        second = lease_one(store, queue="topic.b", now=NOW + 1)
        ack(store, second, now=NOW + 2)
        ack(store, first, now=NOW + 3)

        if much:
            _write_much(store, NOW + 4)

        for message in (first, second):
            life = store.history(message.queue, message.id)
            assert kinds(life)[-2:] == ["leased", "acked"]
            assert {event.queue for event in life[-2:]} == {message.queue}

    def test_the_life_of_a_message_that_was_cancelled(self, store: QueueStore) -> None:
        message = put(store)
        store.cancel(QUEUE, message.id, now=NOW)

        assert kinds(store.history(QUEUE, message.id)) == ["enqueued", "cancelled"]

    def test_there_is_no_life_of_what_nobody_knows(self, store: QueueStore) -> None:
        message = put(store)

        assert store.history(QUEUE, "0" * 32) == []
        assert store.history("nowhere", message.id) == []

    def test_the_life_of_a_message_begins_before_a_reopening(self, store: QueueStore) -> None:
        message = put(store)

        again = self.reopened(store)
        ack(again, lease_one(again))

        assert kinds(again.history(QUEUE, message.id)) == ["enqueued", "leased", "acked"]


class JournalPayloads(StoreCase):
    """Values are kept in the journal where the queue says so."""

    def test_payloads_are_not_kept_unless_asked_for(self, store: QueueStore) -> None:
        put(store)

        assert {event.body for event in events(store)} == {None}

    @pytest.mark.parametrize("size", [1, 100_000], ids=["small", "large"])
    def test_a_kept_payload_outlives_its_message(self, store: QueueStore, size: int) -> None:
        store.configure(QUEUE, {"journal_payloads": True}, now=NOW)
        message = put(store, "x" * size)
        drain(store)

        [enqueued] = [event for event in events(store) if event.kind == "enqueued"]

        assert enqueued.message_id == message.id
        assert enqueued.body == body("x" * size)

    def test_what_a_message_has_beside_its_value_is_kept_with_it(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"journal_payloads": True, "ordering": "priority"}, now=NOW)
        put(store, "x")
        put(store, "y", priority=3, headers=b'{"tenant":"a"}', codec="mine")

        plain, special = [event for event in events(store) if event.kind == "enqueued"]

        assert plain.detail is None
        assert special.detail == {"headers": {"tenant": "a"}, "priority": 3, "codec": "mine"}

    def test_an_ordering_key_is_kept_with_the_payload(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"journal_payloads": True, "ordering": "per-key"}, now=NOW)

        put(store, "x", ordering_key="k")

        assert _one(events(store), "enqueued").detail == {"ordering_key": "k"}

    def test_the_payloads_of_other_queues_are_not_kept(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"journal_payloads": True}, now=NOW)
        put(store, queue="other")

        assert {event.body for event in events(store, ["other"])} == {None}


class JournalTrimming(StoreCase):
    """Events go when they are too old or too many, and not before."""

    def test_events_beyond_the_number_kept_are_trimmed(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"journal_max_rows": 100}, now=NOW)
        put(store)
        beginning = store.journal_end()

        _write_much(store, NOW)

        assert len(events(store, [QUEUE])) < 5_000
        with pytest.raises(JournalTrimmed):
            store.journal([QUEUE], after=beginning)

    def test_events_older_than_their_age_are_trimmed(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"journal_max_age": 10 * DAY}, now=NOW)
        put(store)
        beginning = store.journal_end()
        _write_much(store, NOW)
        assert store.journal([QUEUE], after=beginning, limit=1) != []

        _write_much(store, NOW + 11 * DAY)

        assert events(store, [QUEUE])[0].at > NOW
        with pytest.raises(JournalTrimmed):
            store.journal([QUEUE], after=beginning)

    def test_reading_from_the_beginning_is_never_an_error(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"journal_max_rows": 100}, now=NOW)
        _write_much(store, NOW)

        assert store.journal() != []

    def test_a_queue_keeps_its_events_while_another_trims(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"journal_max_rows": 100}, now=NOW)
        message = put(store, queue="quiet")

        _write_much(store, NOW)

        found = [event for event in events(store, ["quiet"]) if event.kind == "enqueued"]
        assert [event.message_id for event in found] == [message.id]

    def test_a_journal_that_is_off_keeps_little_and_counts_all(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"journal": False}, now=NOW)

        _write_much(store, NOW)

        stats = store.stats(QUEUE, now=NOW)
        assert len(events(store, [QUEUE])) < 5_000
        assert (
            stats.total == store.waiting(QUEUE, now=NOW) == len(store.peek(QUEUE, 10_000, now=NOW))
        )

    def test_messages_live_on_when_their_events_are_trimmed(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"journal_max_rows": 100}, now=NOW)
        first = put(store, "first", dedupe_key="k")
        _write_much(store, NOW + 1)

        leased = lease_one(store, now=NOW + 2)

        assert leased.id == first.id
        assert ack(store, leased, now=NOW + 3) == [True]

    def test_trimming_is_remembered_after_a_reopening(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"journal_max_rows": 100}, now=NOW)
        put(store)
        beginning = store.journal_end()
        _write_much(store, NOW)
        total = store.stats(QUEUE, now=NOW).total

        again = self.reopened(store)

        with pytest.raises(JournalTrimmed):
            again.journal([QUEUE], after=beginning)
        assert again.stats(QUEUE, now=NOW).total == total


class JournalReaders(StoreCase):
    """A consumer group: what it has not read is kept for it."""

    def test_readers_are_listed_with_their_positions(self, store: QueueStore) -> None:
        put(store)
        end = store.journal_end()

        made = store.register_reader("archive", position=end, max_age=60.0, now=NOW)
        store.register_reader("metrics", now=NOW + 1)

        assert (made.name, made.position, made.max_age) == ("archive", end, 60.0)
        assert sorted(reader.name for reader in store.readers()) == ["archive", "metrics"]
        assert made in store.readers()

    def test_a_reader_starts_with_the_oldest_kept_event(self, store: QueueStore) -> None:
        put(store)

        reader = store.register_reader("archive", now=NOW)

        assert store.journal(after=reader.position) == store.journal()

    def test_a_reader_moves_on(self, store: QueueStore) -> None:
        store.register_reader("archive", now=NOW)
        put(store)
        end = store.journal_end()

        store.commit_reader("archive", end, now=NOW + 5)

        [reader] = store.readers()
        assert (reader.position, reader.updated_at) == (end, NOW + 5)

    def test_a_dropped_reader_is_gone(self, store: QueueStore) -> None:
        store.register_reader("archive", now=NOW)

        assert store.drop_reader("archive")
        assert not store.drop_reader("archive")
        assert store.readers() == []

    def test_what_a_reader_has_not_read_is_kept_for_it(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"journal_max_rows": 100}, now=NOW)
        put(store)
        position = store.journal_end()
        store.register_reader("archive", position=position, now=NOW)

        written = _write_much(store, NOW)

        kept = events(store, [QUEUE], after=position)
        assert kinds(kept).count("enqueued") == written

    def test_what_a_reader_has_read_is_trimmed(self, store: QueueStore) -> None:
        store.configure(QUEUE, {"journal_max_rows": 100}, now=NOW)
        put(store)
        position = store.journal_end()
        store.register_reader("archive", position=position, now=NOW)
        _write_much(store, NOW)

        store.commit_reader("archive", store.journal_end(), now=NOW)
        _write_much(store, NOW)

        with pytest.raises(JournalTrimmed):
            store.journal([QUEUE], after=position)

    def test_a_position_after_which_events_are_gone_is_refused_unless_missing_ones_are_ok(
        self, store: QueueStore
    ) -> None:
        store.configure(QUEUE, {"journal_max_rows": 100}, now=NOW)
        put(store)
        position = store.journal_end()
        _write_much(store, NOW)
        kept = events(store, [QUEUE])

        with pytest.raises(JournalTrimmed):
            store.register_reader("archive", position=position, now=NOW)
        assert store.readers() == []

        store.register_reader("archive", position=position, missing_ok=True, now=NOW)
        _write_much(store, NOW)
        assert store.readers()[0].position == position
        assert events(store, [QUEUE])[: len(kept)] == kept

    def test_a_reader_that_stays_away_too_long_does_not_keep_events_for_ever(
        self, store: QueueStore
    ) -> None:
        store.configure(QUEUE, {"journal_max_rows": 100}, now=NOW)
        put(store)
        position = store.journal_end()
        store.register_reader("archive", position=position, max_age=DAY, now=NOW)
        _write_much(store, NOW)

        _write_much(store, NOW + 2 * DAY)

        with pytest.raises(JournalTrimmed):
            store.journal([QUEUE], after=position)

    def test_readers_survive_a_reopening(self, store: QueueStore) -> None:
        put(store)
        reader = store.register_reader("archive", now=NOW)

        assert self.reopened(store).readers() == [reader]


def _write_much(store: QueueStore, now: float) -> int:
    """Many events in many transactions, enough for a store that trims now and then."""
    written = 0
    for _ in range(10):
        put_all(store, range(500), now=now)
        written += 500
    for _ in range(20):
        put(store, now=now)
        written += 1
    return written
