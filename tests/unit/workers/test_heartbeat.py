"""Heartbeats: leases hold while handlers run, whatever the handlers do, and no longer."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from localqueue.clock import SYSTEM_CLOCK, Now, StoreTime
from localqueue.errors import StoreBusy
from localqueue.message import Receipt
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.minimal import MinimalStore
from localqueue.stores.protocol import LeaseAnswer, LeaseRequest, Put, StoredMessage
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.testing import ManualClock
from localqueue.workers.heartbeat import Heartbeat, Held
from localqueue.workers.keeper import is_running
from localqueue.workers.keeper_process import make_keeper
from localqueue.workers.liveness import Liveness
from tests.unit.workers.processes import PATIENCE, Holder, children_of, holder, is_alive, until

LEASE = 2.0
"""Short, so that several of them pass in a test, and long for what a busy machine may be late."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteQueueStore]:
    with SQLiteQueueStore(tmp_path / "queue.sqlite3") as store:
        yield store


@pytest.fixture
def when(store: SQLiteQueueStore) -> StoreTime:
    return StoreTime(SYSTEM_CLOCK, store.open_clock(SYSTEM_CLOCK))


# --- one round ----------------------------------------------------------------------------------
class Bench:
    """A worker's leases on a store in memory, with a clock that is set by hand."""

    def __init__(self, n: int, store: MemoryQueueStore | None = None) -> None:
        self.clock = ManualClock()
        self.store = store or MemoryQueueStore()
        self.when = StoreTime(self.clock, self.store.open_clock(self.clock))
        self.store.enqueue_many([Put("jobs", b"%d" % at) for at in range(n)], now=self.when.now)
        self.liveness = Liveness(None, "worker-1")
        self.leased = self.lease(n, liveness="worker-1", prefetched=True)
        self.told: list[tuple[Receipt, LeaseAnswer]] = []

    def lease(self, n: int, **options: Any) -> list[StoredMessage]:
        return list(
            self.store.lease(LeaseRequest(("jobs",), n, 30.0, **options), now=self.when.now)
        )

    def receipts(self) -> list[Receipt]:
        return [Receipt(one.queue, one.id, one.token) for one in self.leased]

    def heartbeat(self, held: Held, timeout: float = 30.0) -> Heartbeat:
        return Heartbeat(
            self.store,
            self.when,
            self.liveness,
            timeout,
            held=lambda: held,
            on_answer=lambda receipt, answer: self.told.append((receipt, answer)),
        )


def test_what_runs_is_held_and_its_worker_charged_and_what_is_prefetched_is_only_held() -> None:
    bench = Bench(3)
    running, waiting, forgotten = bench.receipts()
    bench.clock.advance(20)

    bench.heartbeat(Held([running], [waiting])).beat()

    bench.clock.advance(11)
    assert [message.body for message in bench.lease(9)] == [b"2"], "nobody held this one"
    bench.clock.advance(20)
    again = {message.body: message.crashes for message in bench.lease(9)}
    assert again == {b"0": 1, b"1": 0}
    assert forgotten not in [receipt for receipt, _ in bench.told]


def test_every_answer_is_told_with_its_receipt() -> None:
    bench = Bench(3)
    held, asked, lost = bench.receipts()
    bench.store.cancel("jobs", asked.id, now=bench.when.now)
    bench.store.ack_many([lost], now=bench.when.now)

    bench.heartbeat(Held([held, asked], [lost])).beat()

    assert bench.told == [
        (held, LeaseAnswer.HELD),
        (asked, LeaseAnswer.CANCEL_ASKED),
        (lost, LeaseAnswer.LOST),
    ]


def test_a_note_that_a_handler_left_is_not_overwritten() -> None:
    bench = Bench(1)
    [running] = bench.receipts()
    bench.store.extend([running], timeout=30.0, note="half done", now=bench.when.now)

    bench.heartbeat(Held([running])).beat()

    row = bench.store._runner.read(
        lambda view: view.db.execute("SELECT note FROM message").fetchone()
    )
    assert row == ("half done",)


def test_more_leases_than_one_transaction_takes_are_all_held() -> None:
    bench = Bench(2500)
    bench.clock.advance(20)

    bench.heartbeat(Held([], bench.receipts())).beat()

    bench.clock.advance(20)
    assert bench.lease(9) == []
    assert len(bench.told) == 2500


def test_each_lease_is_held_as_long_as_its_own_queue_says() -> None:
    bench = Bench(2)
    long, short = bench.receipts()
    heartbeat = Heartbeat(
        bench.store,
        bench.when,
        bench.liveness,
        5.0,
        held=lambda: Held([long, short]),
        timeout_of=lambda receipt: 300.0 if receipt == long else 5.0,
    )

    heartbeat.beat()

    bench.clock.advance(250)
    assert [message.body for message in bench.lease(9)] == [b"1"]


def test_who_listens_cannot_break_the_heartbeat(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(2)

    def fail(*_: object) -> None:
        raise RuntimeError("planted")

    held = Held(bench.receipts())
    heartbeat = Heartbeat(
        bench.store, bench.when, bench.liveness, 30.0, held=lambda: held, on_answer=fail
    )
    bench.clock.advance(20)
    heartbeat.beat()

    bench.clock.advance(20)
    assert bench.lease(9) == []
    assert [record.exc_info is not None for record in caplog.records] == [True, True]


# --- the thread ---------------------------------------------------------------------------------
class Counting(MemoryQueueStore):
    """Says when it was asked to extend, after some troubles."""

    def __init__(self, *troubles: Exception) -> None:
        super().__init__()
        self.troubles = list(troubles)
        self.extended = threading.Semaphore(0)

    def extend(
        self, receipts: Sequence[Receipt], *, timeout: float, note: str | None = None, now: Now
    ) -> list[LeaseAnswer]:
        if self.troubles:
            raise self.troubles.pop()
        answers = super().extend(receipts, timeout=timeout, note=note, now=now)
        self.extended.release()
        return answers


def test_it_beats_until_it_is_stopped() -> None:
    store = Counting()
    bench = Bench(1, store)

    with bench.heartbeat(Held(bench.receipts()), 0.05):
        for _ in range(3):
            assert store.extended.acquire(timeout=PATIENCE)

    while store.extended.acquire(blocking=False):
        pass
    assert not store.extended.acquire(timeout=0.1)


def test_it_goes_on_after_an_error_of_the_store(caplog: pytest.LogCaptureFixture) -> None:
    store = Counting(StoreBusy("planted"), OSError("planted"))
    bench = Bench(1, store)

    with bench.heartbeat(Held(bench.receipts()), 0.05):
        assert store.extended.acquire(timeout=PATIENCE)

    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2


def test_a_store_that_cannot_extend_is_left_in_peace(caplog: pytest.LogCaptureFixture) -> None:
    asked = threading.Event()

    def held() -> Held:
        asked.set()
        return Held([Receipt("jobs", "m", 1)])

    clock = ManualClock()
    heartbeat = Heartbeat(
        MinimalStore(object()),  # type: ignore[arg-type]  # none of its verbs is called
        StoreTime(clock, 0.0),
        Liveness(None),
        0.05,
        held=held,
    )
    with heartbeat:
        assert asked.wait(PATIENCE)
        heartbeat._thread.join(PATIENCE)
        assert not heartbeat._thread.is_alive()
    assert caplog.records == []


def test_one_that_was_never_started_can_be_stopped() -> None:
    bench = Bench(1)

    bench.heartbeat(Held()).stop()


# --- from outside -------------------------------------------------------------------------------
BEATS = """
    held = take(2)
    def lost(receipt, answer):
        if answer == "lost":
            say("lost")
    mine = Held(receipts(held))
    beat = Heartbeat(store, when, liveness, LEASE, held=lambda: mine, on_answer=lost)
    beat.start()
    liveness.begin(0, held[0].id)
    say("holds", len(held))
"""
HOLDS_THE_GIL = (
    BEATS
    + """
    sys.stdin.readline()
    say("begins")
    ctypes.PyDLL(None).usleep(int(LEASE * 2.5 * 1e6))
    acked = store.ack_many(receipts(held), now=when.now)
    say("acked", *acked)
    beat.stop()
    liveness.close()
    store.close()
    say("ended")
"""
)
WAITS = BEATS + "    sys.stdin.read()\n"


def put(store: SQLiteQueueStore, when: StoreTime, n: int = 2) -> None:
    store.enqueue_many([Put("jobs", b"%d" % at) for at in range(n)], now=when.now)


def lease(store: SQLiteQueueStore, when: StoreTime) -> Sequence[StoredMessage]:
    return store.lease(LeaseRequest(("jobs",), 9), now=when.now)


def keeper_of(worker: Holder) -> int:
    until(lambda: len(children_of(worker.pid)) == 1)
    return children_of(worker.pid)[0]


def test_a_handler_that_holds_the_gil_for_several_leases_keeps_them(
    store: SQLiteQueueStore, when: StoreTime
) -> None:
    put(store, when)
    with holder(store.path, HOLDS_THE_GIL, LEASE) as worker:
        worker.heard("holds", "2")
        keeper_of(worker)
        worker.tell()
        worker.heard("begins")
        end = when.now() + 2.2 * LEASE
        while when.now() < end:
            assert list(lease(store, when)) == []
            threading.Event().wait(0.05)

        worker.heard("acked", "True", "True")
        worker.heard("ended")
        assert worker.process.wait(PATIENCE) == 0
    kinds = {(event.kind, event.by) for event in store.journal(["jobs"])}
    assert ("extended", "sweep") in kinds, "it was the keeper who held them"
    store.close()
    assert list(store.path.parent.iterdir()) == [store.path]


def test_without_its_keeper_such_a_handler_loses_its_leases(
    store: SQLiteQueueStore, when: StoreTime
) -> None:
    """What the test before it shows is the keeper's work."""
    put(store, when)
    program = HOLDS_THE_GIL.replace("on_answer=lost", "keeper=False")
    with holder(store.path, program, LEASE) as worker:
        worker.heard("holds", "2")
        worker.tell()
        worker.heard("begins")
        until(lambda: len(lease(store, when)) > 0)

        worker.heard("acked", "False", "False")


def test_a_worker_that_is_stopped_for_longer_than_its_lease_loses_it(
    store: SQLiteQueueStore, when: StoreTime
) -> None:
    put(store, when)
    with holder(store.path, WAITS, LEASE) as worker:
        worker.heard("holds", "2")
        keeper = keeper_of(worker)
        assert is_running(worker.pid)
        worker.send(signal.SIGSTOP)
        until(lambda: not is_running(worker.pid))

        until(lambda: len(lease(store, when)) > 0)

        assert is_alive(keeper)
        worker.send(signal.SIGCONT)
        worker.heard("lost")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_keeper_ends_with_its_worker(
    store: SQLiteQueueStore, when: StoreTime, how: signal.Signals
) -> None:
    put(store, when)
    with holder(store.path, WAITS) as worker:
        worker.heard("holds", "2")
        keeper = keeper_of(worker)

        worker.send(how)
        worker.process.wait(PATIENCE)

        until(lambda: not is_alive(keeper))


def test_a_keeper_outlives_the_signals_that_ask_its_worker_to_drain(
    store: SQLiteQueueStore, when: StoreTime
) -> None:
    put(store, when)
    with holder(store.path, WAITS, LEASE) as worker:
        worker.heard("holds", "2")
        keeper = keeper_of(worker)
        # Its own handlers are in place once it has loaded the store.
        until(
            lambda: b"localqueue" in Path(f"/proc/{keeper}/maps").read_bytes() or _ignores(keeper)
        )

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(keeper, number)
        threading.Event().wait(0.1)

        assert is_alive(keeper)
        assert os.getpgid(keeper) != os.getpgid(worker.pid), "Ctrl-C does not even reach it"


def _ignores(pid: int) -> bool:
    """Whether the process ignores SIGTERM."""
    status = Path(f"/proc/{pid}/status").read_text()
    [ignored] = [line.split()[1] for line in status.splitlines() if line.startswith("SigIgn")]
    return bool(int(ignored, 16) >> (signal.SIGTERM - 1) & 1)


def test_a_keeper_that_was_killed_is_replaced(store: SQLiteQueueStore, when: StoreTime) -> None:
    put(store, when)
    with holder(store.path, WAITS, LEASE) as worker:
        worker.heard("holds", "2")
        keeper = keeper_of(worker)

        os.kill(keeper, signal.SIGKILL)

        until(lambda: children_of(worker.pid) not in ([], [keeper]))


def test_there_is_no_keeper_where_it_could_do_nothing(
    store: SQLiteQueueStore, when: StoreTime
) -> None:
    manual = StoreTime(ManualClock(), 0.0)
    with Liveness(store.run_folder) as alive, Liveness(None) as unseen:
        assert make_keeper(store, when, alive, 30.0) is not None
        assert make_keeper(store, manual, alive, 30.0) is None
        assert make_keeper(MemoryQueueStore(), when, unseen, 30.0) is None
