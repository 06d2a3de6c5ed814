"""The second half of the main job: the same file on Spark, here by the cores of this machine."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import localqueue.spark
from examples.main_job.shown import table
from localqueue import ConfigurationError, PersistentQueue, SQLiteQueueStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def started() -> Iterator[SparkSession | None]:
    """A session; None where Spark cannot be started, which is said."""
    print("  starting Spark ...")
    try:
        spark = localqueue.spark.session(config={"spark.driver.memory": "1g"})
    except ConfigurationError as error:
        print(f"  left out, all else works: {error}")
        yield None
        return
    yield spark
    spark.stop()


def squared(job: dict[str, int]) -> int:
    """A handler that runs on Spark's executors."""
    if job["number"] == 13:
        raise ValueError("13 is not for me")
    return job["number"] ** 2


def work_on_spark(spark: SparkSession, path: Path, store: SQLiteQueueStore) -> None:
    """A queue is read, written and worked on."""
    source = spark.read.format("localqueue").option("url", f"sqlite:///{path.absolute()}")

    journal = source.options(queue="thumbnails", content="journal", columns="kind,ran").load()
    print("  the journal of thumbnails, as a table:")
    how_attempts_ended = journal.where("ran IS NOT NULL").groupBy("kind").count().orderBy("kind")
    table(("attempts that were", "count"), how_attempts_ended.collect())

    numbers = spark.range(2000).selectExpr("id AS number")
    sink = numbers.write.format("localqueue").mode("append")
    sink.options(url=f"sqlite:///{path.absolute()}", queue="numbers").save()
    queue: PersistentQueue[dict[str, int]] = PersistentQueue("numbers", store=store)
    print(f"  a table of 2000 rows was written into numbers, {queue.qsize()} messages wait")

    summary = localqueue.spark.run_on_spark(
        queue, squared, spark=spark, until_empty=True, max_tries=1, handle_signals=False
    )
    print(f"  executors ran the handler: {summary.done} done, {summary.dead} given up")


def make_tables_and_report(spark: SparkSession, path: Path) -> None:
    """What happened so far becomes tables on a lake, a summary and a page."""
    from localqueue.spark.pipeline.report import summary, write_report

    lake, page = path.with_name("main_job_lake"), path.with_name("main_job.html")
    shutil.rmtree(lake, ignore_errors=True)
    run = localqueue.spark.Pipeline(f"sqlite:///{path.absolute()}", lake, spark=spark).run()
    print(f"  {run.events} events of the journal became tables on the lake {lake}:")
    table(("table", "rows"), [(name, rows) for name, rows in run.added.items() if rows])
    print(f"\n{textwrap.indent(summary(lake), '  ')}")
    write_report(lake, page)
    print(f"\n  the same as a page with charts: {page}")
