"""Workers on Spark whose driver, executors and Python workers are killed at any moment.

Proven: every message has its effect, with effectively-once none has it twice, and nobody is charged
with the death of a process that others killed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from localqueue import PersistentQueue
from localqueue.idempotency.records import IdempotencyRecords
from localqueue.spark import run_on_spark
from localqueue.testing import check_history
from tests.crash.diary import Progress
from tests.crash.reckoning import Broken, read_journal
from tests.crash.working import EFFECTS, Queue, handle, job, open_queue
from tests.faults.nursery import environment
from tests.spark.clusters import LOCAL_CLUSTER, Server
from tests.spark.workers_program import processes_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = str(Path(__file__).parent / "workers_program.py")
MESSAGES = 1200
LONGEST_HANDLER = 0.02
KILLS = ("python", "executor", "python", "executor", "python")
"""What is killed one after the other, before the driver is."""
PATIENCE = 120.0


@pytest.fixture
def queue(store_path: Path) -> Iterator[Queue]:
    queue = open_queue(str(store_path), "relaxed", "effectively-once")
    yield queue
    queue.store.close()


class Watching:
    """Waits for the diary to grow."""

    def __init__(self, diary: Path) -> None:
        self._progress = Progress(diary)
        self.done = 0

    def wait_for(self, effects: int) -> None:
        end = time.monotonic() + PATIENCE
        while self.done < effects:
            assert time.monotonic() < end, f"nobody works: {self.done} of {effects}"
            time.sleep(0.005)
            self.look()

    def look(self) -> int:
        self.done = self._progress.effects()
        return self.done

    def close(self) -> None:
        self._progress.close()


def start(what: str, master: str, *arguments: str) -> Server:
    return Server([sys.executable, PROGRAM, what, master, *arguments], env=environment())


def test_effects_are_there_once_whoever_is_killed(
    spark: SparkSession, queue: Queue, store_path: Path, tmp_path: Path
) -> None:
    chance = random.Random(6)
    diary = tmp_path / "diary"
    put = [
        queue.put(job(diary, chance.random(), LONGEST_HANDLER), dedupe_key=str(number)).id
        for number in range(MESSAGES)
    ]
    watching = Watching(diary)

    with start("work", LOCAL_CLUSTER, str(store_path), "driver") as driver:
        driver.wait_for(r"^jvm (\d+)")
        for effects, kind in zip(_moments(chance), KILLS, strict=True):
            watching.wait_for(effects)
            victims = processes_of(driver.pid)[kind]
            assert victims, f"no {kind} process runs"
            os.kill(chance.choice(victims), signal.SIGKILL)
        watching.wait_for(watching.done + 50)
        os.kill(driver.pid, signal.SIGKILL)
    left = queue.stats().total
    run_on_spark(queue, handle, spark=spark, until_empty=True, worker_id="second")

    assert 0 < left < MESSAGES
    assert queue.stats().total == 0
    check_effects(queue, put)
    # They came at bad moments: handlers whose effects were not settled ran again.
    assert watching.look() > MESSAGES
    watching.close()


def _moments(chance: random.Random) -> list[int]:
    return sorted(chance.sample(range(50, MESSAGES // 2), len(KILLS)))


def check_effects(queue: Queue, put: list[str]) -> None:
    """A follow-up for each message, and its kept result, both of the delivery that was acked."""
    events = read_journal(queue.store)
    for violation in check_history(events):
        raise Broken(str(violation))
    acked = {event.message_id: event.attempt for event in events if event.kind == "acked"}
    assert set(put) == set(acked)
    effects: Queue = PersistentQueue(EFFECTS, store=queue.store)
    found = [message.value for message in effects.get_messages(10_000)]
    for id, times in Counter(id for id, _ in found).items():
        if times > 1:
            raise Broken(f"message {id} has its effect {times} times")
    assert dict(found) == acked
    ledger = IdempotencyRecords.of(queue.store)
    for number, id in enumerate(put):
        record = ledger.load(f"jobs:{number}")
        assert record is not None
        assert record.metadata["result"] == acked[id]


def test_effects_before_the_settlement_are_caught(
    spark: SparkSession, store_path: Path, tmp_path: Path
) -> None:
    """The planted defect: the follow-up is put before the message is acknowledged."""
    queue = open_queue(str(store_path), "relaxed", "effects before the ack")
    put = [
        queue.put(job(tmp_path / "diary", 0.0, 0.0), dedupe_key=str(number)).id
        for number in range(20)
    ]
    other: Any = queue.store
    settle = other.settle_and_lease
    died: list[Any] = []

    def lose_the_first(settles: Any, *given: Any, **options: Any) -> Any:
        """As a driver that is killed after the effects and before the settlement."""
        if settles and not died:
            died.append(settles)
            other.release_many([one.receipt for one in settles], now=options["now"])
        return settle(settles, *given, **options)

    other.settle_and_lease = lose_the_first
    run_on_spark(queue, handle, spark=spark, until_empty=True)

    with pytest.raises(Broken, match="has its effect 2 times"):
        check_effects(queue, put)
    queue.store.close()


def test_a_driver_that_is_interrupted_settles_what_is_done_and_gives_back_the_rest(
    store_path: Path, tmp_path: Path
) -> None:
    queue = open_queue(str(store_path), "relaxed")
    diary = tmp_path / "diary"
    queue.put_many([job(diary, 0.5, LONGEST_HANDLER) for _ in range(10_000)])
    watching = Watching(diary)

    with start("work", "local[2]", str(store_path), "interrupted") as driver:
        driver.wait_for(r"^jvm (\d+)")
        watching.wait_for(100)
        # As Ctrl-C does, which all processes of the terminal hear.
        os.killpg(driver.pid, signal.SIGINT)
        done = int(driver.wait_for(r'"done": (\d+)'))

    assert watching.look() >= done
    stats = queue.stats()
    assert stats.inflight == 0
    assert done + stats.ready == 10_000
    assert all((m.crashes, m.failures) == (0, 0) for m in queue.peek(1000))
    watching.close()
    queue.store.close()
