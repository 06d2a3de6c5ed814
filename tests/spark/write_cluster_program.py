"""A driver with executors of its own that writes, and is killed in the middle of a stream's batch.

    python -m tests.spark.write_cluster_program URL FOLDER

First a job writes to the queue ``restless`` of which an executor and a Python worker are killed at
the end of their first attempts. Then a stream copies the journal of ``source`` to ``copy``, and
the driver dies after the first transaction of its batch: see ``KILLER``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

import localqueue.spark
from tests.spark.clusters import LOCAL_CLUSTER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KILLER = """
import os, signal
from localqueue import failpoints

def parent(process):
    with open(f"/proc/{process}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("PPid:"))

def listen(point):
    if point == "sink.after-chunk" and os.environ.get("KILL_IN_STREAM") and in_stream():
        # The commit runs in a child of Python's daemon, which is a child of the driver.
        os.kill(parent(os.getppid()), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

def in_stream():
    with open("/proc/self/cmdline") as command:
        return "python_streaming_sink_runner" in command.read()

listening = failpoints.listening(listen)
listening.__enter__()
"""
"""The ``sitecustomize`` of its Python processes."""


def journal_copy(spark: SparkSession, url: str) -> DataFrame:
    events = spark.readStream.format("localqueue").options(
        url=url, queue="source", content="journal"
    )
    rows = events.load().where("kind = 'enqueued'")
    return rows.selectExpr("seq AS n", "repeat('x', 40) AS text")


def copy_journal(spark: SparkSession, url: str, folder: Path) -> None:
    query = (
        journal_copy(spark, url)
        .writeStream.format("localqueue")
        .options(url=url, queue="copy", checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def write_while_dying(spark: SparkSession, url: str) -> None:
    def die_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            worker, daemon = os.getpid(), os.getppid()
            os.kill(_parent(daemon) if context.partitionId() == 0 else worker, signal.SIGKILL)

    rows = spark.range(0, 12_000, 1, 2).selectExpr(
        "to_json(struct(id AS n, repeat('x', 40) AS text)) AS value"
    )
    rows = rows.mapInArrow(die_at_first, "value string")
    rows.write.format("localqueue").mode("append").options(url=url, queue="restless").save()


def _parent(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("PPid:")[2].split()[0])


def main(url: str, folder: Path) -> None:
    spark = localqueue.spark.session(LOCAL_CLUSTER, config={"spark.driver.memory": "1g"})
    write_while_dying(spark, url)
    copy_journal(spark, url, folder)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
