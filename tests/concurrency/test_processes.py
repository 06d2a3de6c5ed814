"""Several real processes on one file: nothing lost, nothing done twice, also when one is killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite.store import SQLiteQueueStore

pytestmark = pytest.mark.timeout(120)

PATIENCE = 60.0
PRODUCERS, CONSUMERS, EACH = 4, 4, 250

START = """
import json, os, signal, sys
from localqueue import PersistentQueue
from localqueue.stores.sqlite.store import SQLiteQueueStore

path, number = sys.argv[1], int(sys.argv[2])

def open_queue(**options):
    store = SQLiteQueueStore(path, durability="relaxed", timeout=60.0)
    return PersistentQueue("jobs", store=store, **options)

def say(*what):
    print(json.dumps(what), flush=True)
"""
PRODUCE = """
queue = open_queue()
for n in range(int(sys.argv[3])):
    message = queue.put([number, n], dedupe_key=f"{number}-{n}")
    say(message.id)
"""
CONSUME = """
queue = open_queue(lease_timeout=600)
while True:
    message = queue.get_message(timeout=60, leased_by=f"consumer {number}")
    acknowledged = queue.ack(message)
    if message.value == "stop":
        break
    say(message.id, message.value, message.token, message.attempts, acknowledged)
"""


class Process:
    """A Python process that says things, one per line."""

    def __init__(self, program: str, path: Path, number: int = 0, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                START + textwrap.dedent(program),
                str(path),
                str(number),
                *map(str, arguments),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> Any:
        """The next thing it says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process ended"
        return json.loads(line)

    def tell(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def heard(self) -> list[Any]:
        """What else it says until its end, which must be a good one."""
        return self._rest(expected=0)

    def kill(self) -> list[Any]:
        """Kill it; what else it had said by then."""
        os.kill(self._process.pid, signal.SIGKILL)
        return self._rest(expected=-signal.SIGKILL)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        with self._process:
            self._process.wait(PATIENCE)

    def _rest(self, expected: int) -> list[Any]:
        # Not communicate(): it would not see what readline() has read ahead.
        assert self._process.stdout is not None
        said = self._process.stdout.read()
        assert self._process.wait(PATIENCE) == expected
        return [json.loads(line) for line in said.splitlines()]


class Processes:
    """Starts them, and leaves none behind."""

    def __init__(self) -> None:
        self._started: list[Process] = []

    def start(self, program: str, path: Path, number: int = 0, *arguments: object) -> Process:
        self._started.append(Process(program, path, number, *arguments))
        return self._started[-1]

    def stop(self) -> None:
        for process in self._started:
            process.stop()


@pytest.fixture
def processes() -> Iterator[Processes]:
    started = Processes()
    yield started
    started.stop()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.sqlite3"


@pytest.fixture
def queue(path: Path) -> Iterator[PersistentQueue[Any]]:
    store = SQLiteQueueStore(path, durability="relaxed", timeout=60.0)
    yield PersistentQueue("jobs", store=store)
    store.close()


def check_file(path: Path, queue: PersistentQueue[Any]) -> None:
    """The file is sound, and the counts that were kept are those of its rows."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = dict(db.execute("SELECT state, count(*) FROM message GROUP BY state"))
    stats = queue.stats()
    assert stats.total == sum(rows.values())
    assert stats.dead == rows.get(4, 0)


@pytest.mark.parametrize("maxsize", [0, 40])
def test_producers_and_consumers_of_several_processes_do_every_message_once(
    path: Path, processes: Processes, queue: PersistentQueue[Any], maxsize: int
) -> None:
    queue.store.configure("jobs", {"maxsize": maxsize}, now=0.0)
    consumers = [processes.start(CONSUME, path, number) for number in range(CONSUMERS)]
    producers = [processes.start(PRODUCE, path, number, EACH) for number in range(PRODUCERS)]

    put = [line[0] for producer in producers for line in producer.heard()]
    for _ in consumers:
        queue.put("stop")
    done = [line for consumer in consumers for line in consumer.heard()]

    assert len(set(put)) == PRODUCERS * EACH
    assert Counter(line[0] for line in done) == Counter(put), "each taken by one, once"
    assert sorted(line[1] for line in done) == [
        [number, n] for number in range(PRODUCERS) for n in range(EACH)
    ]
    assert len({line[2] for line in done}) == len(done), "no receipt was given twice"
    assert {tuple(line[3:]) for line in done} == {(1, True)}
    stats = queue.stats()
    assert stats.total == 0
    assert sum(stats.leases_by_worker_id.values()) == len(done) + CONSUMERS
    check_file(path, queue)


def test_processes_that_open_a_new_file_at_the_same_moment_share_it(
    tmp_path: Path, processes: Processes
) -> None:
    program = """
    for round in range(5):
        say("ready")
        sys.stdin.readline()
        with PersistentQueue("jobs", store_path=f"{path}.{round}") as queue:
            queue.put(number)
    """
    racers = [processes.start(program, tmp_path / "new", number) for number in range(4)]
    for _ in range(5):
        for racer in racers:
            racer.hear()
        for racer in racers:
            racer.tell()
    for racer in racers:
        racer.heard()

    for number in range(5):
        with PersistentQueue[int]("jobs", store_path=tmp_path / f"new.{number}") as queue:
            assert sorted(message.value for message in queue.peek(10)) == [0, 1, 2, 3]


def test_a_killed_consumers_messages_come_back_when_their_lease_ends(
    path: Path, processes: Processes, queue: PersistentQueue[Any]
) -> None:
    queue.put_many(range(5))
    program = """
    queue = open_queue(lease_timeout=0.7)
    messages = queue.get_messages(3, leased_by="killed")
    say(messages[0].leased_until, [message.id for message in messages])
    signal.pause()
    """
    consumer = processes.start(program, path)
    leased_until, taken = consumer.hear()
    consumer.kill()

    others = queue.get_messages(5, block=False)
    again = [queue.get_message(timeout=PATIENCE) for _ in taken]

    assert [message.value for message in others] == [3, 4]
    assert [message.id for message in again] == taken
    for message in again:
        first, ended, present = message.attempt_history
        assert (first["leased_by"], ended["type"]) == ("killed", "lease_expired")
        assert ended["at"] >= leased_until
        assert (present["attempt"], message.crashes) == (2, 0)
    assert queue.ack_many([*others, *again]) == [True] * 5
    check_file(path, queue)


def test_a_consumer_killed_at_work_loses_nothing_and_undoes_nothing(
    path: Path, processes: Processes, queue: PersistentQueue[Any]
) -> None:
    queue.put_many(range(3000))
    program = """
    queue = open_queue(lease_timeout=0.5)
    while True:
        message = queue.get_message()
        queue.ack(message)
        say(message.value)
    """
    done = []
    for number in range(3):
        consumer = processes.start(program, path, number)
        done += [consumer.hear()[0] for _ in range(30)]
        done += [line[0] for line in consumer.kill()]

    left: list[int] = []
    while (stats := queue.stats()).ready or stats.inflight:
        messages = queue.get_messages(1000, timeout=PATIENCE)
        assert all(queue.ack_many(messages))
        left += [message.value for message in messages]

    assert left, "they were killed before they were done"
    assert not set(done) & set(left), "what was acknowledged does not come again"
    assert len(done) == len(set(done))
    assert len(left) == len(set(left))
    # Each may have acknowledged one more than it came to say.
    assert len(set(range(3000)) - set(done) - set(left)) <= 3
    check_file(path, queue)


def test_a_killed_producer_leaves_every_put_that_it_was_answered(
    path: Path, processes: Processes, queue: PersistentQueue[Any]
) -> None:
    producer = processes.start(PRODUCE, path, 7, 1_000_000)
    answered = [producer.hear()[0] for _ in range(50)]
    answered += [line[0] for line in producer.kill()]

    stored = queue.peek(10_000)

    assert [message.value for message in stored] == [[7, n] for n in range(len(stored))]
    assert [message.id for message in stored[: len(answered)]] == answered
    assert len(stored) - len(answered) in (0, 1), "one may be stored and not answered yet"
    check_file(path, queue)


def test_a_killed_producer_leaves_whole_batches(
    path: Path, processes: Processes, queue: PersistentQueue[Any]
) -> None:
    program = """
    queue = open_queue()
    for n in range(1_000_000):
        queue.put_many([[n, step] for step in range(25)])
        say(n)
    """
    producer = processes.start(program, path)
    answered = [producer.hear()[0] for _ in range(10)]
    answered += [line[0] for line in producer.kill()]

    stored = [message.value for message in queue.peek(100_000)]

    batches = len(stored) // 25
    assert stored == [[n, step] for n in range(batches) for step in range(25)]
    assert batches - len(answered) in (0, 1)
    check_file(path, queue)
