"""A queue written, read, streamed and consumed by a Spark that does not run in this process.

    python elsewhere_program.py MASTER URL FOLDER

Prints one JSON object: what was read, and where tasks found the package.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import localqueue.spark
from localqueue import PersistentQueue

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Where a task has the package from."""
    import pyarrow as pa

    import localqueue

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"file": [str(localqueue.__file__)]})


def consume(spark: SparkSession, queue: dict[str, str], folder: Path) -> None:
    """In lease mode, several batches, each put into ``taken`` by ``foreachBatch``."""

    def put(rows: DataFrame, number: int) -> None:
        writer = rows.write.format("localqueue").mode("append")
        writer.options(
            url=queue["url"], queue="taken", sinkId="elsewhere", batchId=str(number)
        ).save()

    leased = spark.readStream.format("localqueue").options(
        **queue, columns="value", lease="true", consumerGroup="elsewhere", maxRowsPerTrigger="8"
    )
    query = (
        leased.load()
        .writeStream.foreachBatch(put)
        .option("checkpointLocation", str(folder / "leases"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def values(url: str, name: str) -> list[int]:
    """What a queue has."""
    with PersistentQueue[dict[str, int]](name, store=url) as queue:
        return sorted(message.value["id"] for message in queue.peek(100))


def main(master: str, url: str, folder: Path) -> dict[str, Any]:
    spark = localqueue.spark.session(master)
    localqueue.spark.register(spark)
    queue = {"url": url, "queue": "numbers"}

    spark.range(20).write.format("localqueue").options(**queue).mode("append").save()

    typed = spark.read.format("localqueue").options(
        **queue, columns="state", payloadSchema="id int"
    )
    messages = typed.load().where("state = 'ready' AND id >= 10").collect()

    stream = (
        spark.readStream.format("localqueue")
        .options(**queue, columns="value")
        .load()
        .writeStream.format("localqueue")
        .options(url=url, queue="copies")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()

    consume(spark, queue, folder)

    files = spark.range(0, 4, 1, 2).mapInArrow(where, "file string").collect()
    spark.stop()
    return {
        "read": sorted(row["id"] for row in messages),
        "copied": values(url, "copies"),
        "taken": values(url, "taken"),
        "left": values(url, "numbers"),
        "files": sorted({row["file"] for row in files}),
    }


if __name__ == "__main__":
    answer = main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    sys.stdout.write(json.dumps(answer))
