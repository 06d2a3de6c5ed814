"""What a stream holds of its queue, without Spark around it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from queue import Empty

import pytest

from localqueue import PersistentQueue
from localqueue.clock import Now
from localqueue.errors import ConfigurationError, StoreBusy
from localqueue.spark import leadership
from localqueue.spark.leadership import Leadership
from localqueue.spark.lease.heartbeat import LeaseHeartbeat
from localqueue.spark.lease.leased_stream import LeasedStream, liveness_of
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.open import open_store

Open = Callable[..., LeasedStream]


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "PATIENCE", 0.0)


@pytest.fixture
def jobs(url: str) -> Iterator[PersistentQueue[int]]:
    with PersistentQueue[int]("jobs", store=url) as queue:
        yield queue


@pytest.fixture
def open_stream(url: str) -> Iterator[Open]:
    """Streams that are closed with the test."""
    opened: list[LeasedStream] = []

    def open_one(
        name: str = "nightly", timeout: float = 600.0, queue: str = "jobs"
    ) -> LeasedStream:
        opened.append(LeasedStream(open_store(url), queue, name, timeout))
        return opened[-1]

    yield open_one
    for stream in opened:
        stream.close()


def values(stream: LeasedStream, after: int = 0) -> list[int]:
    return [int(message.body) for message in stream.messages(after, stream.position())]


def end_all_leases(url: str) -> None:
    """As an operator does."""
    with closing(open_store(url)) as store:
        assert store.end_leases_of(liveness_of("nightly", "jobs"), (), now=0.0) == 1


def test_it_holds_what_it_leased_until_it_acknowledges_that(
    jobs: PersistentQueue[int], open_stream: Open
) -> None:
    jobs.put_many(range(5))
    stream = open_stream()

    assert stream.lease(3) == 3
    first = stream.position()
    assert (stream.held(), values(stream), jobs.qsize()) == (3, [0, 1, 2], 2)

    stream.ack(first)

    assert (stream.held(), jobs.stats().total) == (0, 2)
    assert stream.lease(float("inf")) == 2
    assert values(stream, after=first) == [3, 4]


def test_the_next_process_of_its_name_finds_what_it_held(
    jobs: PersistentQueue[int], open_stream: Open
) -> None:
    jobs.put_many(range(4))
    before = open_stream()
    before.lease(3)
    position = before.position()
    before.close()

    after = open_stream()

    assert (after.position(), after.held(), values(after)) == (position, 3, [0, 1, 2])
    after.ack(position)
    assert jobs.stats().total == 1


def test_streams_of_other_names_hold_other_messages(
    jobs: PersistentQueue[int], open_stream: Open
) -> None:
    jobs.put_many(range(4))
    one, other = open_stream("one"), open_stream("other")
    one.lease(2)
    other.lease(2)

    assert (values(one), values(other)) == ([0, 1], [2, 3])
    one.ack(other.position())
    assert values(other) == [2, 3]


def test_a_message_whose_lease_was_lost_belongs_to_someone_else(
    jobs: PersistentQueue[int], open_stream: Open, url: str
) -> None:
    jobs.put_many(range(2))
    stream = open_stream()
    stream.lease(2)
    with closing(open_store(url)) as store:
        first, _ = store.leased_under(liveness_of("nightly", "jobs"), "jobs")
        assert jobs.release(first.id)
    theirs = jobs.get_message()

    assert values(stream) == [1]
    stream.ack(stream.position())

    assert jobs.ack(theirs)


def test_its_end_is_no_crash_of_its_messages_however_often_it_dies(
    jobs: PersistentQueue[int], open_stream: Open, url: str
) -> None:
    jobs.put(1)
    # By expiry and by an operator, each more often than the queue's crash limit allows.
    for ended_by_operator in [False] * 4 + [True] * 4:
        stream = open_stream(timeout=0.05)
        stream.lease(1)
        stream.close()
        if ended_by_operator:
            end_all_leases(url)
        jobs.release(jobs.get_message(timeout=10))

    message = jobs.get_message()

    assert (message.attempts, message.crashes, message.failures) == (17, 0, 0)


def test_its_leases_are_extended_while_it_lives(
    jobs: PersistentQueue[int], open_stream: Open
) -> None:
    jobs.put(1)
    stream = open_stream(timeout=0.3)
    stream.lease(1)

    # For longer than a lease lasts.
    with pytest.raises(Empty):
        jobs.get(timeout=1.0)


def test_what_it_held_of_another_queue_comes_back_by_itself(
    jobs: PersistentQueue[int], open_stream: Open, url: str
) -> None:
    jobs.put(1)
    stream = open_stream(timeout=0.3)
    stream.lease(1)
    stream.close()

    with PersistentQueue[int]("others", store=url) as others:
        others.put(2)
        open_stream(timeout=0.3, queue="others").lease(1)

        assert jobs.get(timeout=10) == 1
        assert others.qsize() == 0


def test_a_second_stream_of_its_name_is_refused_while_it_lives(
    jobs: PersistentQueue[int], open_stream: Open, url: str
) -> None:
    jobs.put(1)
    stream = open_stream()
    with closing(open_store(url)) as store:
        store.journal_end()
        with pytest.raises(ConfigurationError, match=f"nightly.*process {os.getpid()}"):
            Leadership(store, "nightly")
        stream.close()
        Leadership(store, "nightly").close()


LEADER = """
import signal, sys
from localqueue.spark.lease.leased_stream import LeasedStream
from localqueue.stores.open import open_store
stream = LeasedStream(open_store(sys.argv[1]), "jobs", "nightly", float(sys.argv[2]))
stream.lease(2)
print("leads", flush=True)
signal.pause()
"""


def test_a_killed_one_leaves_its_leases_and_no_lock(
    jobs: PersistentQueue[int], open_stream: Open, url: str
) -> None:
    jobs.put_many(range(3))
    leader = subprocess.Popen([sys.executable, "-c", LEADER, url, "600"], stdout=subprocess.PIPE)
    with leader:
        try:
            assert leader.stdout is not None
            assert leader.stdout.readline() == b"leads\n"
            with pytest.raises(ConfigurationError, match=f"process {leader.pid}"):
                open_stream()
        finally:
            leader.kill()

    # Nobody buries it: its leases are not a worker's.
    assert jobs.get() == 2
    assert values(open_stream()) == [0, 1]


DRIVER = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
"""


def test_one_that_lives_on_without_its_driver_extends_nothing(
    jobs: PersistentQueue[int], url: str
) -> None:
    jobs.put_many(range(2))
    driver = subprocess.run(
        [sys.executable, "-c", DRIVER, LEADER, url, "0.5"],
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    try:
        assert jobs.get(timeout=30) in range(2)
    finally:
        os.kill(int(driver.stdout), signal.SIGKILL)


class BusyAtFirst(MemoryQueueStore):
    """Somebody else has the lock for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.extended = threading.Event()

    def extend_of(self, liveness: str, *, timeout: float, now: Now) -> int:
        self.asked += 1
        if self.asked == 1:
            raise StoreBusy("somebody holds the lock of postgresql://anna:hunter2@host/db")
        self.extended.set()
        return super().extend_of(liveness, timeout=timeout, now=now)


def test_an_extension_that_went_wrong_is_tried_again_before_the_leases_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = BusyAtFirst()
    heartbeat = LeaseHeartbeat(store, "nightly", 3.0, time.monotonic)

    # A third of a lease to the first try, and much less to the second one.
    assert store.extended.wait(2.0)

    heartbeat.close()
    assert "somebody holds the lock" in caplog.text
    assert "hunter2" not in caplog.text
