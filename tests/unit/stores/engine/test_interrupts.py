"""Ctrl-C comes at any moment: it ends the call of its thread, and nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localqueue.message import Receipt
from localqueue.stores.protocol import LeaseRequest, Put
from localqueue.stores.sqlite.commit import Group
from localqueue.stores.sqlite.group_commit import GROWS, Call, GroupCommit
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.stores.sqlite.verbs.publish import enqueue_many
from localqueue.stores.sqlite.view import Transaction
from tests.unit.stores.engine.phrases import (
    QUEUE,
    SOON,
    Meeting,
    lease_all,
    make_store,
    meeting,
    put,
    runner_of,
    spoil,
)

STORM = """
import random, signal, sys, time
from localqueue.stores.protocol import Put
from localqueue.stores.sqlite.store import SQLiteQueueStore

class Interrupt(BaseException): ...

def interrupt(*_):
    raise Interrupt

signal.signal(signal.SIGALRM, interrupt)
store = SQLiteQueueStore(sys.argv[1], timeout=2.0, durability="relaxed")
puts = [Put("jobs", b"1")]
store.enqueue_many(puts, now=1.0)
interrupts, end, delays = 0, time.monotonic() + 1.0, random.Random(1)
while time.monotonic() < end:
    try:
        signal.setitimer(signal.ITIMER_REAL, delays.uniform(0.0001, 0.0008))
        while time.monotonic() < end:
            store.enqueue_many(puts, now=1.0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt:
        interrupts += 1
store.enqueue_many(puts, now=1.0)
assert interrupts > 10, interrupts
print(store.check().problems)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteQueueStore]:
    with make_store(tmp_path) as opened:
        yield opened


def test_a_storm_of_interrupts_leaves_a_store_that_works_and_a_file_without_problems(
    tmp_path: Path,
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STORM, tmp_path / "queue.sqlite3"],
        capture_output=True,
        text=True,
        timeout=SOON,
    )

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() in ("[]", "()")


def put_three_more(store: SQLiteQueueStore, met: Meeting) -> None:
    met.add("leader", lambda: put(store, b"of the leader"))
    met.add("a", lambda: put(store, b"a"))
    met.add("b", lambda: put(store, b"b"))
    met.add("c", lambda: put(store, b"c"))


def test_who_is_interrupted_while_each_runs_alone_tells_nobody_what_was_undone(
    store: SQLiteQueueStore,
) -> None:
    runs: list[int] = []

    def interrupted_when_alone(tx: Transaction) -> str:
        enqueue_many(tx, [Put(QUEUE, b"a")])
        runs.append(1)
        if len(runs) == 2:
            raise KeyboardInterrupt
        return "a"

    with meeting(store) as met:
        met.add("leader", lambda: put(store, b"of the leader"))
        met.add("a", lambda: runner_of(store).write(interrupted_when_alone, 1.0, GROWS))
        met.add("b", lambda: put(store, b"b"))
        met.add("bad", lambda: runner_of(store).write(spoil, 1.0))
        met.add("c", lambda: put(store, b"c"))

    assert isinstance(met.errors.pop("leader"), KeyboardInterrupt)
    assert isinstance(met.errors.pop("bad"), ZeroDivisionError)
    assert set(met.answers) == {"a", "b", "c"}
    assert lease_all(store) == [b"of the leader", b"a", b"b", b"c"]


@pytest.mark.usefixtures("tables_only")
def test_who_is_interrupted_after_the_commit_still_waits_for_the_disk_on_behalf_of_the_others(
    store: SQLiteQueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        put(store)
    leased = store.lease(LeaseRequest((QUEUE,), 2), now=1.0)
    receipts = [Receipt(message.queue, message.id, message.token) for message in leased]
    syncs: list[int] = []
    has_changed, interrupts = Transaction.has_changed, iter([True])

    def interrupted(tx: Transaction) -> bool:
        if not tx.db.in_transaction and next(interrupts, False):
            raise KeyboardInterrupt
        return has_changed(tx)

    with meeting(store) as met:
        met.add("leader", lambda: store.ack_many([receipts[0]], now=1.0))
        met.add("other", lambda: store.ack_many([receipts[1]], now=1.0))
        monkeypatch.setattr(Transaction, "has_changed", interrupted)
        monkeypatch.setattr(os, "fdatasync", syncs.append)

    assert isinstance(met.errors["leader"], KeyboardInterrupt)
    assert met.answers == {"other": [True]}
    assert len(syncs) == 1


def test_who_is_interrupted_as_it_takes_the_others_along_leaves_them_to_the_next(
    store: SQLiteQueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = GroupCommit._take
    interrupts = iter([True])

    def interrupted(self: GroupCommit) -> list[Call[Any]]:
        taken = take(self)
        if next(interrupts, False):
            raise KeyboardInterrupt
        return taken

    with meeting(store) as met:
        put_three_more(store, met)
        monkeypatch.setattr(GroupCommit, "_take", interrupted)

    assert isinstance(met.errors.pop("leader"), KeyboardInterrupt)
    assert set(met.answers) == {"a", "b", "c"}
    assert lease_all(store) == [b"a", b"b", b"c"]


@pytest.mark.usefixtures("tables_only")
def test_who_is_interrupted_after_the_commit_answers_the_others_and_nothing_runs_twice(
    store: SQLiteQueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember = Group._remember
    interrupts = iter([True])

    def interrupted(self: Group, done: list[Transaction], calls: list[Call[Any]]) -> None:
        if next(interrupts, False):
            raise KeyboardInterrupt
        remember(self, done, calls)

    with meeting(store) as met:
        put_three_more(store, met)
        monkeypatch.setattr(Group, "_remember", interrupted)

    assert isinstance(met.errors.pop("leader"), KeyboardInterrupt)
    assert set(met.answers) == {"a", "b", "c"}
    assert lease_all(store) == [b"of the leader", b"a", b"b", b"c"]
