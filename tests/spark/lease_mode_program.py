"""A driver to be killed: lease-mode queries whose sink is a folder, keyed by message id.

    python lease_mode_program.py URL FOLDER QUEUE...

The sink of a queue is FOLDER/QUEUE, its checkpoint FOLDER/QUEUE.checkpoint. It says ``jvm PID`` and
each batch that it begins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import localqueue.spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def write_by_id(folder: Path) -> Callable[[DataFrame, int], None]:
    """A sink with one file per message: written twice it is the same."""
    folder.mkdir(parents=True, exist_ok=True)

    def write(rows: DataFrame, batch: int) -> None:
        say(f"batch {batch} of {folder.name}")
        for row in rows.collect():
            unfinished = folder / f".{row.id}"
            unfinished.write_text(row.value)
            unfinished.rename(folder / row.id)

    return write


def start(
    spark: SparkSession, url: str, folder: Path, queue: str, *, available_now: bool = False
) -> StreamingQuery:
    rows = spark.readStream.format("localqueue").options(
        url=url, queue=queue, lease="true", consumerGroup=f"copy of {queue}", maxRowsPerTrigger="5"
    )
    writer = rows.load().writeStream.foreachBatch(write_by_id(folder / queue))
    if available_now:
        writer = writer.trigger(availableNow=True)
    return writer.option("checkpointLocation", str(folder / f"{queue}.checkpoint")).start()


def main(url: str, folder: Path, *queues: str) -> None:
    spark = localqueue.spark.session("local[2,4]", config={"spark.driver.memory": "1g"})
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    say(f"jvm {gateway.proc.pid}")
    for queue in queues:
        start(spark, url, folder, queue)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
