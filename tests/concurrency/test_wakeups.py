"""Waking across processes: nothing is missed, and nobody is woken for nothing.

Who waits here never looks by itself before the time is over, so a wake-up that is lost is seen.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from localqueue.queue import PersistentQueue
from localqueue.stores.protocol import LeaseRequest, Put
from localqueue.stores.sqlite.store import SQLiteQueueStore

pytestmark = pytest.mark.timeout(120)

PATIENCE = 60.0
LATE = 2.0
"""Slower than any wake-up on a busy machine, and faster than a waiter that looks by itself."""
START = f"""
import json, os, signal, sys, threading, time
from localqueue.stores.protocol import LeaseRequest, Put, QueueIsFull
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.stores.sqlite.wakeups.fifo_waiter import FifoWaiter

path, defect, *arguments = sys.argv[1:]
store = SQLiteQueueStore(path, durability="relaxed", timeout=60.0)
LATE = {LATE}

def say(*what):
    os.write(1, json.dumps(what).encode() + b"\\n")

def take(queue):
    return store.lease(LeaseRequest((queue,), remove=True), now=time.time)

def put(queue):
    store.enqueue_many([Put(queue, b"1")], now=time.time)

if defect == "drained after the probe":
    wait_for_token = FifoWaiter.wait

    def wait_drained(self, timeout):
        # Long enough for the other one to put something in between, every time.
        time.sleep(0.005)
        for end in self._ends.values():
            end.drain()
        return wait_for_token(self, timeout)

    FifoWaiter.wait = wait_drained

if defect == "nobody tells the next":
    FifoWaiter._tell_next = lambda self, numbers: None
"""


class Crowd:
    """Processes that say things into one pipe, one per line; none is left behind."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read, self._write = os.pipe()
        self._said: IO[str] = os.fdopen(self._read)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, program: str, *arguments: object, defect: str = "") -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                START + textwrap.dedent(program),
                str(self._path),
                defect,
                *map(str, arguments),
            ],
            stdin=subprocess.PIPE,
            stdout=self._write,
        )
        self.processes.append(process)
        return process

    def go(self) -> None:
        """Let each of them read a line."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
            process.stdin.flush()

    def hear(self) -> Any:
        """The next thing that one of them says."""
        return json.loads(self._said.readline())

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            with process:
                process.wait(PATIENCE)
        self._said.close()
        os.close(self._write)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.sqlite3"


@pytest.fixture
def crowd(path: Path) -> Iterator[Crowd]:
    crowd = Crowd(path)
    yield crowd
    crowd.stop()


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteQueueStore]:
    with SQLiteQueueStore(path, durability="relaxed") as store:
        yield store


def put(store: SQLiteQueueStore, n: int = 1) -> None:
    store.enqueue_many([Put("jobs", b"1")] * n, now=time.time)


# --- two who wait for each other --------------------------------------------------------------
PLAY = """
mine, theirs, rounds = arguments[0], arguments[1], int(arguments[2])
lost = 0

def get():
    global lost
    if take(mine):
        return
    waiter, told = store.watch([mine], "ready"), True
    try:
        while not take(mine):
            told = waiter.wait(0.3)
        # What came at the last moment is told a moment later; what is lost is never told.
        lost += not told and not waiter.wait(0.3)
    finally:
        waiter.close()

for _ in range(rounds):
    if mine == "ping":
        get()
    put(theirs)
    if mine == "pong":
        get()
    if lost:
        break
say(mine, lost)
"""


def played(crowd: Crowd, rounds: int, defect: str = "") -> int:
    """How many wake-ups were lost until one gave up."""
    for mine, theirs in (("ping", "pong"), ("pong", "ping")):
        crowd.start(PLAY, mine, theirs, rounds, defect=defect)
    lost = crowd.hear()[1]
    if lost:
        return int(lost)
    return int(crowd.hear()[1])


def test_no_wake_up_is_lost_in_a_thousand_rounds(crowd: Crowd) -> None:
    assert played(crowd, 1_000) == 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_wake_up_is_lost_in_twenty_thousand_rounds(crowd: Crowd) -> None:
    assert played(crowd, 20_000) == 0


def test_a_waiter_that_is_drained_after_the_probe_is_caught(crowd: Crowd) -> None:
    assert played(crowd, 1_000, "drained after the probe") > 0


# --- many who wait for one --------------------------------------------------------------------
CONSUME = """
def consume():
    told = 0
    while True:
        found = take("jobs")
        if not found:
            waiter = store.watch(["jobs"], "ready")
            try:
                while not (found := take("jobs")):
                    told += waiter.wait(2 * LATE)
            finally:
                waiter.close()
        say("got", told)
        told = 0

say("up", 0)
for _ in range(int(arguments[0])):
    threading.Thread(target=consume).start()
"""


def received(crowd: Crowd, n: int) -> tuple[float, int]:
    """How long it takes until they have n messages, and how often somebody was woken for them."""
    began = time.monotonic()
    woken = sum(crowd.hear()[1] for _ in range(n))
    return time.monotonic() - began, woken


def eight_consumers(crowd: Crowd, defect: str = "") -> None:
    """In two processes; they may wait for a queue that is not there yet."""
    for _ in range(2):
        crowd.start(CONSUME, 4, defect=defect)
    assert [crowd.hear()[0] for _ in range(2)] == ["up", "up"]


def test_one_message_wakes_one_of_eight(crowd: Crowd, store: SQLiteQueueStore) -> None:
    eight_consumers(crowd)
    put(store, 8)
    received(crowd, 8)

    slowest, woken = 0.0, 0
    for _ in range(200):
        put(store)
        seconds, wake_ups = received(crowd, 1)
        slowest, woken = max(slowest, seconds), woken + wake_ups

    assert slowest < LATE
    assert woken <= 220


TAKE_ONE_EACH = """
def get_one():
    waiter = store.watch(["jobs"], "ready")
    try:
        while not take("jobs"):
            waiter.wait(2 * LATE)
    finally:
        waiter.close()
    say("got", 0)

for line in sys.stdin:
    threads = [threading.Thread(target=get_one) for _ in range(4)]
    for thread in threads:
        thread.start()
    say("up", 0)
    for thread in threads:
        thread.join()
"""


def slowest_batch(crowd: Crowd, store: SQLiteQueueStore, defect: str = "") -> float:
    """Eight messages at once for eight who take one each; the first time the queue is made."""
    for _ in range(2):
        crowd.start(TAKE_ONE_EACH, defect=defect)
    slowest = 0.0
    for _ in range(30):
        crowd.go()
        assert [crowd.hear()[0] for _ in range(2)] == ["up", "up"]
        put(store, 8)
        slowest = max(slowest, received(crowd, 8)[0])
        if slowest > LATE:
            break
    return slowest


def test_a_batch_wakes_as_many_as_it_needs(crowd: Crowd, store: SQLiteQueueStore) -> None:
    assert slowest_batch(crowd, store) < LATE


def test_waiters_who_do_not_tell_the_next_are_caught(crowd: Crowd, store: SQLiteQueueStore) -> None:
    assert slowest_batch(crowd, store, "nobody tells the next") > LATE


# --- producers --------------------------------------------------------------------------------
PRODUCE = """
def produce():
    while True:
        waiter = store.watch(["jobs"], "room")
        try:
            while True:
                try:
                    put("jobs")
                    break
                except QueueIsFull:
                    waiter.wait(2 * LATE)
        finally:
            waiter.close()
        say("put", 0)

for _ in range(2):
    threading.Thread(target=produce).start()
"""


def test_producers_who_wait_for_room_are_woken_as_places_become_free(
    crowd: Crowd, store: SQLiteQueueStore
) -> None:
    store.configure("jobs", {"maxsize": 6, "overflow": "block"}, now=time.time)
    for _ in range(2):
        crowd.start(PRODUCE)
    received(crowd, 6)

    for number in range(60):
        n = 1 + number % 4
        assert len(store.lease(LeaseRequest(("jobs",), n, remove=True), now=time.time)) == n
        assert received(crowd, n)[0] < LATE


# --- those who die ----------------------------------------------------------------------------
def test_a_token_that_dies_with_its_reader_costs_a_moment(
    crowd: Crowd, store: SQLiteQueueStore
) -> None:
    queue: PersistentQueue[Any] = PersistentQueue("jobs", store=store)
    queue.put("first")
    queue.get()
    dying = crowd.start(
        """
        waiter = store.watch(["jobs"], "ready")
        say("up", 0)
        waiter.wait(60)
        say("told", 0)
        signal.pause()
        """
    )
    assert crowd.hear()[0] == "up"
    queue.put("left")
    assert crowd.hear()[0] == "told"

    dying.send_signal(signal.SIGKILL)

    assert queue.get(timeout=PATIENCE) == "left"
