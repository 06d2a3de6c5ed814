"""Drivers, executors and Python workers of a pipeline that are killed on a cluster, at any moment.

Proven: no event is missing and none is twice, in every table, and the tables agree with each other
and with what the store counts.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from localqueue import PersistentQueue
from localqueue.errors import ConfigurationError
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.pipeline import Pipeline
from tests.faults.nursery import environment
from tests.pipeline.reckoning import reckon
from tests.pipeline.working import open_queue, work
from tests.spark.clusters import LOCAL_CLUSTER, Server, standalone_cluster
from tests.spark.waiting import until
from tests.spark.workers_program import processes_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = str(Path(__file__).parent / "pipeline_program.py")
PATIENCE = 180.0
ROWS = 60
"""Events of a batch: so that there are many batches, and moments to be killed at."""


@pytest.fixture
def queues(url: str) -> Iterator[list[PersistentQueue[Any]]]:
    queues = [open_queue(url, name) for name in ("jobs", "mails")]
    yield queues
    for queue in queues:
        queue.close()


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Another one every time. A failure tells its seed, which LOCALQUEUE_SEED gives it again."""
    seed = int(os.environ.get("LOCALQUEUE_SEED") or random.randrange(2**32))
    request.node.add_report_section("setup", "seed", f"LOCALQUEUE_SEED={seed}")
    return random.Random(seed)


def driver(url: str, lake: Lake, name: str, master: str = LOCAL_CLUSTER) -> Server:
    command = [sys.executable, PROGRAM, url, lake.location.uri, name, master, str(ROWS)]
    return Server(command, env=environment())


def wait_for_any_moment(running: Server, chance: random.Random) -> None:
    """Somewhere inside one of the first batches."""
    running.wait_for(r"^at pipeline.(batch)", PATIENCE)
    for _ in range(chance.randrange(14)):
        running.wait_for(r"^(at) ", PATIENCE)
    time.sleep(chance.uniform(0.0, 0.3))


def kill(running: Server, what: str, chance: random.Random) -> None:
    """The driver's whole session, its JVM alone, or one of the processes that work for it."""
    match what:
        case "driver":
            os.killpg(running.pid, signal.SIGKILL)
        case "jvm":
            jvm = next(line.split()[1] for line in running.log if line.startswith("jvm "))
            os.kill(int(jvm), signal.SIGKILL)
        case _:
            # Python workers come and go; and when all is done, none comes any more.
            def there() -> list[int]:
                return processes_of(running.pid)[what]

            until(lambda: there() or running.log[-1].startswith("done"), f"no {what} process runs")
            with suppress(ProcessLookupError, IndexError):
                os.kill(chance.choice(there()), signal.SIGKILL)


def test_a_killed_driver_leaves_nothing_out_and_nothing_twice(
    spark: SparkSession,
    url: str,
    lake: Lake,
    queues: list[PersistentQueue[Any]],
    chance: random.Random,
) -> None:
    for queue in queues:
        work(queue, 120)

    with driver(url, lake, "killed") as running:
        wait_for_any_moment(running, chance)
        kill(running, chance.choice(("driver", "jvm")), chance)
    for queue in queues:
        work(queue, 20)
    Pipeline(url, lake, name="killed", spark=spark).run()

    reckon(lake, *queues)


def test_killed_executors_and_a_second_pipeline_leave_nothing_out_and_nothing_twice(
    spark: SparkSession,
    url: str,
    lake: Lake,
    queues: list[PersistentQueue[Any]],
    chance: random.Random,
) -> None:
    for queue in queues:
        work(queue, 120)

    with driver(url, lake, "first") as running:
        wait_for_any_moment(running, chance)
        kill(running, "executor", chance)
        second = Pipeline(url, lake, name="second", spark=spark, rows_per_batch=77).run()
        running.wait_for(r"^at pipeline.after-(batch)", PATIENCE)
        kill(running, "python", chance)
        running.wait_for(r"^done (\d+)", PATIENCE)

    assert second.events > 0
    reckon(lake, *queues)


# --- for long -------------------------------------------------------------------------------------
@contextmanager
def at_work(url: str) -> Iterator[None]:
    """Somebody goes on using the queues."""
    enough = threading.Event()

    def go_on() -> None:
        queues = [open_queue(url, name) for name in ("jobs", "mails")]
        while not enough.wait(0.2):
            for queue in queues:
                work(queue, 15)

    busy = threading.Thread(target=go_on)
    busy.start()
    try:
        yield
    finally:
        enough.set()
        busy.join()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_killed_again_and_again_the_tables_agree_with_the_store(
    spark: SparkSession,
    url: str,
    lake: Lake,
    queues: list[PersistentQueue[Any]],
    tmp_path: Path,
    seed: int,
) -> None:
    chance = random.Random(seed)
    for queue in queues:
        work(queue, 100)
    with standalone_cluster(tmp_path) as master, at_work(url):
        for _ in range(6):
            with driver(url, lake, "long", chance.choice((master, LOCAL_CLUSTER))) as running:
                wait_for_any_moment(running, chance)
                if chance.random() < 0.5:
                    Pipeline(url, lake, name="beside", spark=spark, rows_per_batch=50).run()
                if running.log[-1].startswith("done"):
                    continue
                if chance.random() < 0.5:
                    kill(running, chance.choice(("driver", "jvm")), chance)
                else:
                    with suppress(AssertionError):  # those of the standalone cluster are its own
                        kill(running, chance.choice(("executor", "python")), chance)
                    running.wait_for(r"^(done|at pipeline.after-batch)", PATIENCE)
            if chance.random() < 0.3:
                shutil.rmtree(Path(lake.location.uri, "_checkpoints"))
    # A driver that lost its JVM alone may have left its leader, for a moment.
    for _ in range(100):
        with suppress(ConfigurationError):
            Pipeline(url, lake, name="long", spark=spark).run()
            break
        time.sleep(0.1)

    reckon(lake, *queues)
