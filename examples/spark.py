"""Queues on Spark: a DataFrame becomes messages, executors run the handler, the journal is a table.

    python examples/spark.py

Needs ``pip install "localqueue[spark]"`` and Java 17 or newer.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

import localqueue.spark
from localqueue import ConfigurationError, PersistentQueue


def resize(job: dict[str, int]) -> int:
    """Runs on an executor."""
    if job["width"] % 100 == 99:
        raise ValueError(f"{job['width']} pixels are too odd")
    return job["width"] // 2


def main(folder: Path) -> None:
    # What stands for the store in every option of Spark: an absolute path, hence four slashes.
    url = f"sqlite:///{folder / 'queue.sqlite3'}"
    spark = localqueue.spark.session()
    # What fails here is meant to; the worker would log each of them.
    logging.getLogger("localqueue.workers").setLevel(logging.CRITICAL)

    # Rows become messages; the columns are the payload.
    images = spark.range(1000).selectExpr("CAST(id AS INT) AS width")
    images.write.format("localqueue").options(url=url, queue="resize").mode("append").save()

    # And messages become rows, chosen by the store.
    messages = (
        spark.read.format("localqueue")
        .options(url=url, queue="resize", columns="id", payloadSchema="width int")
        .option("where", "state = 'ready'")
        .load()
    )
    print(messages.count(), "messages wait")
    print(messages.agg({"width": "max"}).collect()[0][0], "is the widest")

    # The driver leases and settles, executors run the handler.
    with PersistentQueue[dict[str, int]]("resize", store=url) as queue:
        summary = localqueue.spark.run_on_spark(
            queue, resize, spark=spark, until_empty=True, max_tries=1
        )
    print(f"{summary.done} done, {summary.dead} given up")

    # The journal as a stream, as far as it goes now, into another queue.
    failures = (
        spark.readStream.format("localqueue")
        .options(url=url, queue="resize", content="journal")
        .load()
        .where("kind = 'dead_lettered'")
        .select("message_id", "error_text")
    )
    query = (
        failures.writeStream.format("localqueue")
        .options(url=url, queue="complaints")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    with PersistentQueue[dict[str, str]]("complaints", store=url) as complaints:
        print(complaints.qsize(), "complaints, the first:", complaints.get()["error_text"])

    spark.stop()


if __name__ == "__main__":
    try:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder))
    except ConfigurationError as error:
        sys.exit(f"left out: {error}")
