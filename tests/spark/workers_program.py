"""A driver of its own, to be killed, interrupted or run on a cluster.

    python workers_program.py WHAT MASTER STORE [ARGUMENT...]

It says what it finds as lines of JSON, after ``jvm PID`` where it has one.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import localqueue.spark
from localqueue.errors import WorkerStopped
from localqueue.spark.workers.worker import SparkWorker
from tests.crash.working import handle, open_queue
from tests.spark import handlers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


OWN = "own:"
"""Before the master of a session that is not set up by us."""


def say(what: Any) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def start_session(master: str) -> SparkSession:
    if master.startswith("sc://"):
        return localqueue.spark.session(master)
    if master.startswith(OWN):
        return own_session(master.removeprefix(OWN))
    # Executors of a cluster find the handlers of the tests by it.
    config = {
        "spark.driver.memory": "1g",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
    }
    spark = localqueue.spark.session(master, config=config)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    os.write(1, f"jvm {gateway.proc.pid}\n".encode())
    return spark


def own_session(master: str) -> SparkSession:
    """As somebody makes it who does not know of ours: FIFO, and one try for a task."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).config("spark.driver.memory", "1g")
    return builder.config("spark.ui.enabled", "false").getOrCreate()


def work(spark: SparkSession, path: str, name: str) -> None:
    """Until it is killed or asked to stop: effectively once, with a diary."""
    queue = open_queue(path, "relaxed", "effectively-once")
    worker = SparkWorker(queue, handle, spark=spark, worker_id=name, batches=4)
    say(worker.run().as_dict())


def drain(spark: SparkSession, path: str, handler: str) -> None:
    """Until the queue is empty, with a handler of the tests."""
    queue = open_queue(path, "relaxed")
    worker = SparkWorker(queue, getattr(handlers, handler), spark=spark, worker_id="driver")
    say(worker.run(until_empty=True).as_dict())


def stop_spark(spark: SparkSession, path: str, diary: str) -> None:
    """The session is stopped while handlers run."""
    queue = open_queue(path, "relaxed")
    worker = SparkWorker(queue, handlers.wait_for_gate, spark=spark, batches=2).start()
    _wait_until(lambda: len(handlers.notes(Path(diary))) >= 2)
    spark.stop()
    try:
        worker.join(handlers.PATIENCE)
    except WorkerStopped as error:
        say(str(error))
    say(worker.summary.as_dict())


def _wait_until(is_so: Callable[[], bool]) -> None:
    patience = threading.Event()
    for _ in range(int(handlers.PATIENCE / 0.01)):
        if is_so():
            return
        patience.wait(0.01)
    raise AssertionError("it never begins")


WHAT: dict[str, Callable[..., None]] = {"work": work, "drain": drain, "stop_spark": stop_spark}


def processes_of(driver: int) -> dict[str, list[int]]:
    """The executors and Python workers that belong to the session of a driver, by kind."""
    found: dict[str, list[int]] = {"executor": [], "python": []}
    parents: dict[int, int] = {}
    daemons: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
            status = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid, parent, session = int(entry.name), int(status[1]), int(status[3])
        if session != driver or status[0] == "Z":
            continue
        if b"CoarseGrainedExecutorBackend" in line:
            found["executor"].append(pid)
        elif b"pyspark.daemon" in line:
            parents[pid] = parent
            daemons.add(pid)
    found["python"] = [pid for pid, parent in parents.items() if parent in daemons]
    return found


if __name__ == "__main__":
    what, master, *rest = sys.argv[1:]
    WHAT[what](start_session(master), *rest)
