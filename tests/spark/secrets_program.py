"""Every way in which a query shows what it does, for a store whose URL has a password.

    python secrets_program.py URL FOLDER

No store has passwords yet, so the sources are made here; they fail where the queue's name says.
What is shown goes to stdout and stderr, the event log and the log of Spark, at its most talkative.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import IntegerType, StructField, StructType

import localqueue.spark
from localqueue.spark.data_source import LocalQueueSource
from localqueue.spark.masking import without_secrets
from localqueue.spark.options import Options


class Step:
    """What all of them share: failing at one step, with the password in the driver's words."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def fail_at(self, step: str) -> None:
        if step in self.options.queues:
            try:
                raise OSError(111, "connection refused", self.options.url)
            except OSError as error:
                raise RuntimeError(f"{step} failed at {self.options.url}") from error


@without_secrets
class Reader(Step, DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        self.fail_at("partitions")
        return [InputPartition(self.options.url)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (1,)
        self.fail_at("read")


@without_secrets
class StreamReader(Step, DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"0": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802
        return {"0": 1}

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        return [InputPartition(self.options.url)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (1,)
        self.fail_at("streamed read")

    def commit(self, end: Any) -> None:
        pass


@without_secrets
class Writer(Step, DataSourceWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        self.fail_at("write")
        return WriterCommitMessage()

    def commit(self, messages: Any) -> None:
        self.fail_at("commit")

    def abort(self, messages: Any) -> None:
        pass


class Source(LocalQueueSource):
    @classmethod
    def name(cls) -> str:
        return "talkative"

    def schema(self) -> StructType:
        return StructType([StructField("n", IntegerType())])

    def reader(self, schema: StructType) -> DataSourceReader:
        return Reader(Options.parse(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(Options.parse(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return Writer(Options.parse(self.options))


def show(what: Callable[[], Any]) -> None:
    try:
        shown = str(what())
    except Exception as error:
        shown = f"{error!r} {error}"
    sys.stdout.write(f"{shown}\n")


def queries(spark: SparkSession, url: str, folder: Path) -> Iterator[Callable[[], Any]]:
    def read(queue: str, source: str = "talkative") -> Any:
        return spark.read.format(source).option("url", url).option("queue", queue).load()

    def stream(queue: str, source: str = "talkative") -> Any:
        options = {"url": url, "queue": queue, "columns": "id"}
        return (
            spark.readStream.format(source)
            .options(**options)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(folder / f"checkpoint-{queue}"))
            .trigger(availableNow=True)
            .start()
        )

    def finished(query: Any) -> str:
        query.awaitTermination()
        return f"{query.lastProgress} {query.status}"

    def write(queue: str, source: str = "talkative") -> None:
        spark.range(1).write.format(source).options(url=url, queue=queue).mode("append").save()

    yield lambda: read("none").explain("extended")
    yield lambda: spark.sql(f"SELECT '{url}' AS shown").explain("extended")
    yield lambda: read("partitions").collect()
    yield lambda: read("read").collect()
    yield lambda: finished(stream("none"))
    yield lambda: finished(stream("streamed read"))
    yield lambda: write("write")
    yield lambda: write("commit")
    # The real ones, which know no such store.
    yield lambda: read("jobs", "localqueue").collect()
    yield lambda: finished(stream("jobs", "localqueue"))
    yield lambda: write("jobs", "localqueue")


def main(url: str, folder: Path) -> None:
    events = folder / "events"
    events.mkdir(parents=True)
    quiet = files("localqueue.spark.sessions").joinpath("log4j2.properties").read_text()
    talkative = folder / "log4j2.properties"
    talkative.write_text(quiet.replace("level = error", "level = info"))
    spark = localqueue.spark.session(
        "local[2]",
        config={
            "spark.eventLog.enabled": True,
            "spark.eventLog.compress": False,
            "spark.eventLog.dir": events.as_uri(),
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={talkative.as_uri()}",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
    )
    spark.dataSource.register(Source)
    for query in queries(spark, url, folder):
        show(query)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
