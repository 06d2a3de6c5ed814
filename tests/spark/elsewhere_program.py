"""A queue written, read and streamed by a Spark that does not run in this process.

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


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Where a task has the package from."""
    import pyarrow as pa

    import localqueue

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"file": [str(localqueue.__file__)]})


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

    files = spark.range(0, 4, 1, 2).mapInArrow(where, "file string").collect()
    spark.stop()
    copies: PersistentQueue[dict[str, int]] = PersistentQueue("copies", store=url)
    copied = [message.value for message in copies.peek(100)]
    copies.close()
    return {
        "read": sorted(row["id"] for row in messages),
        "copied": sorted(one["id"] for one in copied),
        "files": sorted({row["file"] for row in files}),
    }


if __name__ == "__main__":
    answer = main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    sys.stdout.write(json.dumps(answer))
