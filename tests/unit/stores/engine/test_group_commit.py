"""Calls that come together share a transaction and a sync, and nothing else."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localqueue.errors import StoreBusy, StoreClosed
from localqueue.message import Receipt
from localqueue.stores.protocol import LARGEST_BATCH_BYTES, LeaseRequest, Put
from localqueue.stores.sqlite.manners import LEASES
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.stores.sqlite.verbs import fold
from localqueue.stores.sqlite.verbs.lease import lease
from localqueue.stores.sqlite.view import Transaction
from tests.unit.stores.engine.phrases import (
    QUEUE,
    SOON,
    lease_all,
    make_store,
    meeting,
    put,
    refuse,
    runner_of,
    spoil,
    submit,
    until,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteQueueStore]:
    with make_store(tmp_path) as opened:
        yield opened


def done(store: SQLiteQueueStore, figure: str) -> int:
    return int(runner_of(store).figures()[figure])


@pytest.mark.usefixtures("tables_only")
def test_calls_that_wait_together_share_a_commit_and_a_sync(
    store: SQLiteQueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[int] = []
    sync = os.fdatasync

    def counted(descriptor: int) -> None:
        syncs.append(descriptor)
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", counted)
    commits = done(store, "commits")

    with meeting(store) as met:
        for number in range(8):
            met.add(f"put {number}", partial(put, store, b"%d" % number))

    assert not met.errors
    assert done(store, "commits") == commits + 1
    assert len(syncs) == 1
    assert lease_all(store) == [b"%d" % number for number in range(8)]


def test_each_of_a_group_has_its_own_answer(store: SQLiteQueueStore) -> None:
    first, second = put(store, b"1"), put(store, b"2")
    request = LeaseRequest((QUEUE,), 1)

    with meeting(store) as met:
        met.add("put", lambda: put(store, b"3"))
        met.add("lease a", lambda: store.lease(request, now=1.0))
        met.add("lease b", lambda: store.lease(request, now=1.0))
        met.add("lease c", lambda: store.lease(request, now=1.0))
        met.add("lease d", lambda: store.lease(request, now=1.0))
        met.add("stale", lambda: store.ack_many([Receipt(QUEUE, first.id, 1)], now=1.0))
        met.add(
            "held",
            lambda: store.ack_many(
                [Receipt(QUEUE, first.id, None), Receipt(QUEUE, second.id, None)], now=1.0
            ),
        )

    assert [[m.body for m in met.answers[f"lease {x}"]] for x in "abcd"] == [
        [b"1"],
        [b"2"],
        [b"3"],
        [],
    ]
    assert met.answers["stale"] == [False]
    assert met.answers["held"] == [True, True]
    assert done(store, "largest_group") == 7


@pytest.mark.parametrize("bad", [spoil, refuse])
def test_a_call_that_fails_does_not_fail_its_neighbours(store: SQLiteQueueStore, bad: Any) -> None:
    version = store.settings(QUEUE)

    with meeting(store) as met:
        met.add("before", lambda: put(store, b"before"))
        met.add("bad", lambda: runner_of(store).write(bad, 1.0))
        met.add("after", lambda: put(store, b"after"))

    assert set(met.answers) == {"before", "after"}
    assert isinstance(met.errors["bad"], ZeroDivisionError)
    assert lease_all(store) == [b"before", b"after"]
    assert store.settings(QUEUE) == version
    assert store.stats(QUEUE, now=1.0).inflight == 2


def test_a_full_queue_refuses_some_of_a_group_and_takes_the_others(
    store: SQLiteQueueStore,
) -> None:
    store.configure(QUEUE, {"maxsize": 2, "overflow": "reject"}, now=1.0)

    with meeting(store) as met:
        for number in range(5):
            met.add(f"put {number}", partial(put, store, b"%d" % number))

    assert set(met.answers) == {"put 0", "put 1"}
    assert lease_all(store) == [b"0", b"1"]


def test_an_interrupt_reaches_only_the_call_of_its_thread(store: SQLiteQueueStore) -> None:
    def interrupted(tx: Transaction) -> None:
        tx.db.execute("UPDATE queue SET version = version + 100")
        raise KeyboardInterrupt

    version = store.settings(QUEUE)
    with meeting(store) as met:
        met.add("leader", lambda: runner_of(store).write(interrupted, 1.0))
        met.add("a", lambda: put(store, b"a"))
        met.add("b", lambda: put(store, b"b"))

    assert isinstance(met.errors["leader"], KeyboardInterrupt)
    assert set(met.answers) == {"a", "b"}
    assert lease_all(store) == [b"a", b"b"]
    assert store.settings(QUEUE) == version


def test_a_leader_that_is_interrupted_during_the_sync_still_answers_the_others(
    store: SQLiteQueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, b"leased by the leader")
    sync = os.fdatasync
    interrupts = iter([True])

    def interrupted(descriptor: int) -> None:
        if next(interrupts, False):
            raise KeyboardInterrupt
        sync(descriptor)

    with meeting(store) as met:
        met.add("leader", lambda: store.lease(LeaseRequest((QUEUE,), 1), now=1.0))
        met.add("other", lambda: put(store, b"of another"))
        monkeypatch.setattr(os, "fdatasync", interrupted)

    assert isinstance(met.errors["leader"], KeyboardInterrupt)
    assert set(met.answers) == {"other"}
    # Nobody has seen the leader's lease, so it was given back.
    until(lambda: store.stats(QUEUE, now=1.0).inflight == 0)
    assert sorted(lease_all(store)) == [b"leased by the leader", b"of another"]


def test_one_who_waits_too_long_is_busy_and_its_call_never_runs(tmp_path: Path) -> None:
    store = make_store(tmp_path, timeout=0.05)
    group = runner_of(store)._group
    held = group.hold(time.monotonic() + SOON)
    try:
        with pytest.raises(StoreBusy, match="other threads"):
            put(store)
    finally:
        group.let_go(held)

    assert lease_all(store) == []
    store.close()


def test_a_call_of_nobodys_thread_can_be_withdrawn_until_it_is_taken(
    store: SQLiteQueueStore,
) -> None:
    ran: list[str] = []
    with meeting(store):
        withdrawn = submit(store, lambda tx: ran.append("withdrawn"))
        kept = submit(store, lambda tx: ran.append("kept"))
        assert withdrawn.cancel()

    kept.result(SOON)
    assert ran == ["kept"]


@pytest.mark.parametrize("when", ["while it runs", "after it ended"])
def test_leases_that_nobody_sees_are_released_and_settlements_stand(
    store: SQLiteQueueStore, when: str
) -> None:
    put(store)
    runs, go_on = threading.Event(), threading.Event()

    def slowly(tx: Transaction) -> Any:
        leased = store_lease(tx)
        runs.set()
        assert go_on.wait(SOON)
        return leased

    def store_lease(tx: Transaction) -> Any:
        return lease(tx, LeaseRequest((QUEUE,), 1))

    answer = submit(store, slowly, LEASES)
    assert runs.wait(SOON)
    if when == "while it runs":
        answer.cancel()
    go_on.set()
    assert len(answer.result(SOON)) == 1
    if when == "after it ended":
        answer.cancel()

    until(lambda: store.stats(QUEUE, now=1.0).inflight == 0)
    assert [message.attempts for message in store.peek(QUEUE, 9, now=1.0)] == [1]


def test_closing_answers_all_who_still_wait(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    runner = runner_of(store)
    group = runner._group
    held = group.hold(time.monotonic() + SOON)
    closing = threading.Thread(target=store.close)
    closing.start()
    until(lambda: len(group._waiting) == 1)
    answers = [submit(store, lambda tx: None) for _ in range(3)]
    group.let_go(held)

    for answer in answers:
        with pytest.raises(StoreClosed):
            answer.result(SOON)
    closing.join(SOON)


def test_an_answer_that_was_seen_keeps_its_leases(store: SQLiteQueueStore) -> None:
    put(store)

    assert lease_all(store) == [b"1"]

    put(store, b"2")
    assert store.stats(QUEUE, now=1.0).inflight == 1


def test_sixteen_threads_lose_and_double_nothing(store: SQLiteQueueStore) -> None:
    def work(thread: int) -> None:
        for number in range(25):
            put(store, b"%d" % (thread * 25 + number))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)

    assert sorted(map(int, lease_all(store))) == list(range(400))
    assert done(store, "syncs") < done(store, "calls")


def test_leases_that_share_a_commit_do_not_share_the_limit_of_a_batch(
    store: SQLiteQueueStore,
) -> None:
    for _ in range(4):
        put(store, b"x" * (LARGEST_BATCH_BYTES // 3))
    request = LeaseRequest((QUEUE,), 1)

    with meeting(store) as met:
        for number in range(5):
            met.add(f"lease {number}", lambda: store.lease(request, now=1.0))

    assert [len(met.answers[f"lease {number}"]) for number in range(5)] == [1, 1, 1, 1, 0]


def test_removals_that_share_a_commit_each_free_the_ordering_key_for_the_next(
    store: SQLiteQueueStore,
) -> None:
    store.configure(QUEUE, {"ordering": "per-key"}, now=1.0)
    store.enqueue_many([Put(QUEUE, b"%d" % n, ordering_key="k") for n in range(3)], now=1.0)
    request = LeaseRequest((QUEUE,), 1, remove=True)

    with meeting(store) as met:
        for number in range(4):
            met.add(f"get {number}", lambda: store.lease(request, now=1.0))

    answers = [[m.body for m in met.answers[f"get {number}"]] for number in range(4)]
    assert answers == [[b"0"], [b"1"], [b"2"], []]


def test_a_thread_that_cannot_be_started_costs_one_call_and_not_the_store(
    store: SQLiteQueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="can't start"):
            submit(store, lambda tx: "never")

    assert submit(store, lambda tx: "answer").result(SOON) == "answer"
    put(store)
    assert lease_all(store) == [b"1"]


def test_a_call_after_the_close_is_refused_and_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    store = make_store(tmp_path)
    submit(store, lambda tx: None).result(SOON)
    store.close()

    for _ in range(2):
        with pytest.raises(StoreClosed):
            submit(store, lambda tx: None).result(SOON)

    until(lambda: set(threading.enumerate()) <= before)


def test_calls_that_wait_for_a_foreign_program_are_busy_each_in_its_own_time(
    tmp_path: Path,
) -> None:
    with make_store(tmp_path, timeout=0.3) as store:
        shell = sqlite3.connect(store.path, isolation_level=None)
        shell.execute("BEGIN IMMEDIATE")
        began = time.monotonic()

        answers = [submit(store, lambda tx: None) for _ in range(8)]

        for answer in answers:
            with pytest.raises(StoreBusy):
                answer.result(SOON)
        # One after the other it would be eight times the timeout.
        assert time.monotonic() - began < 4 * 0.3
        shell.close()
        put(store)


def test_threads_that_wait_for_the_file_to_be_opened_are_busy_each_in_its_own_time(
    tmp_path: Path,
) -> None:
    with make_store(tmp_path) as other_process:
        put(other_process)
        lock = os.open(tmp_path / "queue.sqlite3-run" / "lock", os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
        late = SQLiteQueueStore(tmp_path / "queue.sqlite3", timeout=0.3)
        errors: list[BaseException] = []

        def read() -> None:
            try:
                late.qsize(QUEUE, now=1.0)
            except StoreBusy as error:
                errors.append(error)

        threads = [threading.Thread(target=read) for _ in range(8)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON)

        assert len(errors) == 8
        assert time.monotonic() - began < 4 * 0.3
        os.close(lock)
        assert late.qsize(QUEUE, now=1.0) == 1
        late.close()


def test_the_counts_of_a_group_are_told_at_the_time_of_what_happened(
    store: SQLiteQueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold, "EVERY", 20)

    with meeting(store) as met:
        met.add("put", lambda: store.enqueue_many([Put(QUEUE, b"1")] * 30, now=5000.0))
        met.add("call that knows no time", lambda: store.drop_reader("nobody"))

    counted = [event.at for event in store.journal() if event.kind == "counted"]
    assert counted == [5000.0]


def test_a_put_that_fails_in_a_group_is_not_counted(store: SQLiteQueueStore) -> None:
    not_bytes: Any = "text"

    with meeting(store) as met:
        met.add("good", lambda: store.enqueue_many([Put(QUEUE, b"1")] * 2, now=1.0))
        met.add("bad", lambda: put(store, not_bytes))
        met.add("ack", lambda: store.ack_many([], now=1.0))

    assert set(met.errors) == {"bad"}
    store.lease(LeaseRequest((QUEUE,), 1), now=1.0)
    stats = store.stats(QUEUE, now=1.0)
    assert (stats.ready, stats.inflight) == (1, 1)
    with SQLiteQueueStore(store.path) as other_process:
        assert other_process.stats(QUEUE, now=1.0) == stats
