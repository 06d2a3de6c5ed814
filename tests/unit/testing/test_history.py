"""The history checker finds nothing in what a store wrote, and every defect planted in that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from localqueue.message import Receipt
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.protocol import JournalEvent, LeaseRequest, Put, QueueStore
from localqueue.testing import Rule, Violation, check_history
from localqueue.testing.random_operations import RandomOperations
from localqueue.testing.side_by_side import SideBySide

QUEUE = "jobs"
NOW = 1_700_000_000.0
LEASE = 10.0
LATER = NOW + LEASE

History = list[JournalEvent]


def a_history() -> History:
    """Three messages: taken over after an expiry, given up, and twice delivered after its time."""
    store = MemoryQueueStore()
    store.enqueue_many([Put(QUEUE, b"1"), Put(QUEUE, b"2")], now=NOW)
    store.enqueue_many([Put(QUEUE, b"3", delay=LEASE + 2)], now=NOW)
    _lease(store, "w1", NOW)
    given_up = _lease(store, "w1", NOW)
    store.extend([given_up], timeout=60.0, now=NOW + 1)
    store.dead_letter_many([given_up], now=NOW + 2)
    taken_over = _lease(store, "w2", LATER)
    store.ack_many([taken_over], now=LATER + 1)
    store.release_many([_lease(store, "w2", LATER + 2)], now=LATER + 3)
    store.ack_many([_lease(store, "w1", LATER + 3)], now=LATER + 4)
    return events_of(store)


def events_of(store: QueueStore) -> History:
    found: History = []
    while page := store.journal(after=found[-1].position if found else None):
        found += page
    return [event for event in found if event.kind not in ("configured", "counted")]


def _lease(store: QueueStore, worker: str, now: float) -> Receipt:
    [leased] = store.lease(LeaseRequest((QUEUE,), 1, LEASE, worker), now=now)
    return Receipt(leased.queue, leased.id, leased.token)


def place(history: History, kind: str, nth: int = 0) -> int:
    """Where the nth event of this kind is."""
    return [at for at, event in enumerate(history) if event.kind == kind][nth]


def without(kind: str, nth: int = 0) -> Callable[[History], None]:
    """A store that forgot to do this, or to tell it."""

    def plant(history: History) -> None:
        del history[place(history, kind, nth)]

    return plant


def twice(kind: str, nth: int = 0) -> Callable[[History], None]:
    """A store that did this again right afterwards."""

    def plant(history: History) -> None:
        at = place(history, kind, nth)
        history.insert(at + 1, history[at]._replace(position="again"))

    return plant


def changed(kind: str, nth: int = 0, **wrong: Any) -> Callable[[History], None]:
    """A store that wrote this down wrong, or did it with the wrong lease."""

    def plant(history: History) -> None:
        at = place(history, kind, nth)
        history[at] = history[at]._replace(**wrong)

    return plant


def later(kind: str, nth: int, last: str, last_nth: int) -> Callable[[History], None]:
    """A store that did the one only after the other."""

    def plant(history: History) -> None:
        event = history[place(history, kind, nth)]
        at = place(history, last, last_nth)
        history.remove(event)
        history.insert(at, event)

    return plant


DEFECTS: dict[str, tuple[Callable[[History], None], Rule, str]] = {
    "a second owner": (without("lease_expired"), Rule.ONE_LEASE, "during attempt 1 of 'w1'"),
    "delivered to two": (twice("leased"), Rule.ONE_LEASE, "leased as attempt 1"),
    "expired too late": (later("lease_expired", 0, "leased", 2), Rule.ONE_LEASE, "leased"),
    "held without a lease": (without("leased", 1), Rule.OWN_LEASE, "nobody had it"),
    "acked without a lease": (without("leased", 4), Rule.OWN_LEASE, "acked of attempt 2"),
    "a stale owner acks": (changed("acked", worker="w1"), Rule.OWN_LEASE, "during attempt 2"),
    "a stale owner extends": (changed("extended", worker="w2"), Rule.OWN_LEASE, "extended"),
    "a stale receipt releases": (changed("released", attempt=2), Rule.OWN_LEASE, "released"),
    "given up twice": (twice("dead_lettered"), Rule.OWN_LEASE, "nobody had it"),
    "the same attempt": (changed("leased", 2, attempt=1), Rule.NEXT_ATTEMPT, "after attempt 1"),
    "an attempt left out": (changed("leased", 2, attempt=3), Rule.NEXT_ATTEMPT, "after attempt 1"),
    "a first attempt of two": (changed("leased", attempt=2), Rule.NEXT_ATTEMPT, "after attempt 0"),
    "acked twice": (twice("acked"), Rule.ENDS_ONCE, "after it was acked"),
    "delivered after its ack": (changed("released", to_state=None), Rule.ENDS_ONCE, "leased"),
    "a dead letter delivered": (changed("released", to_state="dead"), Rule.ENDS_ONCE, "dead"),
    "leased out of nowhere": (changed("leased", from_state="dead"), Rule.ONE_STATE, "was ready"),
    "acked as if it waited": (changed("acked", from_state="ready"), Rule.ONE_STATE, "inflight"),
    "born twice": (twice("enqueued"), Rule.ONE_STATE, "enqueued from None"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found(defect: str) -> None:
    plant, rule, told = DEFECTS[defect]
    history = a_history()
    plant(history)

    found = check_history(history)

    assert [violation.rule for violation in found[:1]] == [rule]
    assert told in found[0].text


def test_every_rule_has_a_defect_that_breaks_it() -> None:
    assert {rule for _, rule, _ in DEFECTS.values()} | {Rule.NEW_POSITION} == set(Rule)


def test_what_a_store_wrote_is_sound() -> None:
    assert check_history(a_history()) == []


def test_an_event_that_is_there_twice_is_told_and_not_believed() -> None:
    history = a_history()
    at = place(history, "acked")
    history.insert(at, history[at])

    [violation] = check_history(history)

    assert violation.rule is Rule.NEW_POSITION


def test_after_a_purge_nothing_is_left_to_be_delivered() -> None:
    store = MemoryQueueStore()
    store.enqueue_many([Put(QUEUE, b"1")], now=NOW)
    _lease(store, "w1", NOW)
    store.purge(QUEUE, now=NOW + 1)
    history = events_of(store)
    delivery = history[place(history, "leased")]

    assert check_history(history) == []
    [violation] = check_history([*history, delivery._replace(position="again", attempt=2)])
    assert violation.rule is Rule.ENDS_ONCE


def test_a_history_may_begin_in_the_middle() -> None:
    history = a_history()

    for start in range(len(history)):
        assert check_history(history[start:]) == []


def test_one_defect_is_told_once() -> None:
    history = a_history()
    changed("leased", 2, attempt=7)(history)
    changed("acked", attempt=7)(history)

    assert len(check_history(history)) == 1


def test_a_violation_says_which_message_and_where() -> None:
    history = a_history()
    event = history[place(history, "acked")]

    told = str(Violation(Rule.ENDS_ONCE, event, "acked after it was acked"))

    assert (
        told == f"'jobs' message {event.message_id}: acked after it was acked (at {event.position})"
    )


@pytest.mark.parametrize("seed", [11, 12])
def test_whatever_is_done_to_a_store_its_history_is_sound(seed: int) -> None:
    pair = SideBySide(MemoryQueueStore(), reopen=lambda store: store)
    choice = RandomOperations(seed, pair.model, pair.now)
    for _ in range(800):
        pair.run(choice.next())

    history = events_of(pair.store)

    assert len(history) > 1000
    assert list(map(str, check_history(history))) == []
