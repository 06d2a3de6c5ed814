"""Ctrl-C between any two steps of noting: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from localqueue.errors import StoreError
from localqueue.stores.sqlite import commit, opened
from localqueue.stores.sqlite.daybook import book
from localqueue.stores.sqlite.daybook.book import Daybook
from localqueue.stores.sqlite.daybook.entries import Entry, size
from localqueue.stores.sqlite.daybook.file import DaybookFile
from localqueue.stores.sqlite.daybook.planning import Noting
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.unit.stores.daybook.phrases import (
    NOW,
    QUEUE,
    ack,
    as_left_by_a_kill,
    bodies,
    book_of,
    lease,
    open_store,
    put,
    waiting,
)
from tests.unit.stores.engine.phrases import meeting, until
from tests.unit.stores.phrases import count_noted

PARTS = (str(Path(book.__file__).parent), commit.__file__)
"""The files whose steps are interrupted."""


@pytest.fixture
def store(tmp_path: Path, noting: None) -> Iterator[SQLiteQueueStore]:
    with open_store(tmp_path / "queue.sqlite3") as store:
        yield store


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    return count_noted(monkeypatch)


class Interrupts:
    """Interrupts a call at its n-th step; ``came`` tells whether it had so many."""

    def __init__(self, step: int) -> None:
        self._left = step
        self.came = False

    def during(self, call: Callable[[], Any]) -> Any:
        sys.settrace(self._called)
        try:
            return call()
        finally:
            sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._stepped if frame.f_code.co_filename.startswith(PARTS) else None

    def _stepped(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and not self.came:
            self._left -= 1
            if self._left == 0:
                self.came = True
                raise KeyboardInterrupt
        return self._stepped


def at_every_step(try_it: Callable[[Interrupts, int], None]) -> int:
    """How many there are."""
    for step in range(1, 1000):
        interrupts = Interrupts(step)
        try_it(interrupts, step)
        if not interrupts.came:
            return step - 1
    raise AssertionError("it never ends")


def test_a_put_happens_once_or_not_at_all_and_those_of_others_once(
    store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    answered: list[bytes] = []
    asked: list[bytes] = []

    def try_it(interrupts: Interrupts, step: int) -> None:
        put(store, b"warm")
        with meeting(store) as met:
            for who in ("leader", "a", "b"):
                body = f"{who} {step}".encode()
                call = partial(put, store, body)
                met.add(who, partial(interrupts.during, call) if who == "leader" else call)
                asked.append(body)
        answered.extend(f"{who} {step}".encode() for who in met.answers)
        assert {type(error) for error in met.errors.values()} <= {KeyboardInterrupt}
        assert {"a", "b"} <= set(met.answers)

    steps = at_every_step(try_it)

    assert steps > 30
    assert sum(map(size, noted)) > steps
    found = Counter(waiting(store))
    found.pop(b"warm")
    assert set(found.values()) == {1}
    assert set(answered) <= set(found) <= set(asked)
    assert store.check().ok


def test_a_lease_is_seen_or_given_back_and_is_nobody_elses(
    store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    def try_it(interrupts: Interrupts, step: int) -> None:
        put(store, b"1", b"2", b"3")
        with meeting(store) as met:
            met.add("leader", partial(interrupts.during, partial(lease, store)))
            for who in ("a", "b"):
                met.add(who, partial(lease, store))

        seen = [message for leased in met.answers.values() for message in leased]
        assert {type(error) for error in met.errors.values()} <= {KeyboardInterrupt}
        assert len(seen) == len(met.answers) == len({message.id for message in seen})
        # What nobody has seen is given back.
        until(lambda: store.stats(QUEUE, now=NOW).inflight == len(seen))
        assert ack(store, seen) == [True] * len(seen)
        rest = lease(store, 9)
        assert len(rest) == 3 - len(seen)
        assert all(ack(store, rest))

    assert at_every_step(try_it) > 30
    assert len(noted) > 100
    assert waiting(store) == []
    assert store.check().ok


def test_an_ack_happens_once_or_not_at_all_and_those_of_others_once(
    store: SQLiteQueueStore, noted: list[Entry]
) -> None:
    def try_it(interrupts: Interrupts, step: int) -> None:
        put(store, b"1", b"2", b"3")
        one, two, three = lease(store, 3)
        with meeting(store) as met:
            met.add("leader", partial(interrupts.during, partial(ack, store, [one])))
            met.add("a", partial(ack, store, [two]))
            met.add("b", partial(ack, store, [three]))

        assert {type(error) for error in met.errors.values()} <= {KeyboardInterrupt}
        assert met.answers["a"] == met.answers["b"] == [True]
        if "leader" in met.answers:
            assert met.answers["leader"] == [True]
        again = ack(store, [one])
        assert again in ([True], [False])
        assert "leader" not in met.answers or again == [False]
        assert store.stats(QUEUE, now=NOW).total == 0

    assert at_every_step(try_it) > 30
    assert len(noted) > 100
    acked = [event.message_id for event in store.journal(limit=100_000) if event.kind == "acked"]
    assert len(acked) == len(set(acked))
    assert store.check().ok


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_was_written_when_the_interrupt_came_is_answered_to_the_others(
    store: SQLiteQueueStore, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    put(store, b"0")
    append, interrupts = DaybookFile.append, iter([True])

    def interrupted(self: DaybookFile, data: bytes, at: int) -> None:
        if when == "after":
            append(self, data, at)
        if next(interrupts, False):
            raise KeyboardInterrupt
        if when == "before":
            append(self, data, at)

    with meeting(store) as met:
        for who in ("leader", "a"):
            met.add(who, partial(put, store, who.encode()))
        monkeypatch.setattr(DaybookFile, "append", interrupted)

    assert isinstance(met.errors.pop("leader"), KeyboardInterrupt)
    assert set(met.answers) == {"a"}
    expected = [b"0", b"leader", b"a"] if when == "after" else [b"0", b"a"]
    assert waiting(store) == expected


def test_what_is_known_is_given_up_where_an_entry_cannot_be_taken_back(
    store: SQLiteQueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, b"0")
    append = DaybookFile.append

    def interrupted(self: DaybookFile, data: bytes, at: int) -> None:
        monkeypatch.setattr(DaybookFile, "append", refused)
        append(self, data[:20], at)
        raise KeyboardInterrupt

    def refused(self: DaybookFile, data: bytes, at: int) -> None:
        monkeypatch.setattr(DaybookFile, "append", append)
        raise OSError("Input/output error")

    monkeypatch.setattr(DaybookFile, "append", interrupted)
    with pytest.raises(StoreError):
        put(store, b"1")

    assert not book_of(store).is_ours
    put(store, b"2")
    assert waiting(store) == [b"0", b"2"]


def test_interrupts_are_seen_where_a_book_minds_them_not(
    store: SQLiteQueueStore, noted: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(self: Daybook, noting: Noting) -> bool:
        self.disown()
        return False

    monkeypatch.setattr(Daybook, "is_noted", never)

    with pytest.raises(AssertionError):
        test_a_put_happens_once_or_not_at_all_and_those_of_others_once(store, noted)


def test_a_lease_that_was_given_back_is_the_next_one(store: SQLiteQueueStore) -> None:
    put(store, b"1", b"2")
    interrupts = Interrupts(60)

    with meeting(store) as met:
        met.add("leader", partial(interrupts.during, partial(lease, store)))

    until(lambda: store.stats(QUEUE, now=NOW).inflight == len(met.answers))
    got = bodies([m for leased in met.answers.values() for m in leased]) + bodies(lease(store, 9))
    assert sorted(got) == [b"1", b"2"]


def test_who_is_next_is_known_right_after_an_interrupt_while_it_is_read(
    store: SQLiteQueueStore,
) -> None:
    """Rows of the tables are read ahead, and what was put since is let in behind them."""

    def try_it(interrupts: Interrupts, step: int) -> None:
        put(store, *(b"%d" % number for number in range(4)))
        waiting(store)
        put(store, b"4")
        taken = list(lease(store))
        put(store, b"5")
        with suppress(KeyboardInterrupt):
            taken += interrupts.during(partial(lease, store, 2))
        until(lambda: store.stats(QUEUE, now=NOW).inflight == len(taken))
        while leased := lease(store, 2):
            taken += leased

        assert sorted(bodies(taken)) == [b"%d" % number for number in range(6)]
        assert ack(store, taken) == [True] * 6

    assert at_every_step(try_it) > 60
    assert store.check().ok


def test_a_book_that_could_not_get_its_head_is_not_noted_in(
    tmp_path: Path, noting: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_anew, failures = DaybookFile.begin_anew, iter([True])

    def fail_once(self: DaybookFile, bits: str) -> None:
        if next(failures, False):
            raise KeyboardInterrupt
        begin_anew(self, bits)

    monkeypatch.setattr(DaybookFile, "begin_anew", fail_once)
    path = tmp_path / "queue.sqlite3"
    with open_store(path) as store:
        with pytest.raises(KeyboardInterrupt):
            put(store, b"interrupted")
        for number in range(9):
            put(store, b"%d" % number)
        left = as_left_by_a_kill(path, tmp_path / "left")

    with SQLiteQueueStore(left) as after:
        assert waiting(after) == [b"%d" % number for number in range(9)]


def test_an_interrupted_close_leaves_no_lock_behind(
    tmp_path: Path, noting: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "queue.sqlite3"
    store = open_store(path)
    put(store, b"1")
    put(store, b"2")
    with monkeypatch.context() as patch:
        patch.setattr(opened, "post", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.close()

    with SQLiteQueueStore(path, timeout=1.0) as after:
        assert waiting(after) == [b"1", b"2"]
