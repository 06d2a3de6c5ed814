"""A store and a read of its file in one Python worker of Spark, which is used again and again.

    python reused_worker_program.py PATH

Prints one JSON object: for each step which library read in the worker, and at the end what is
stored. With one core all tasks run in the same worker.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import localqueue.spark
from localqueue import PersistentQueue

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def in_worker(spark: SparkSession, work: Callable[[Any], object]) -> Any:
    """Call it in the worker, with what the calls before it have left there."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import sys
        import types

        import pyarrow as pa

        for _ in batches:
            pass
        kept = sys.modules.setdefault("kept_by_the_test", types.ModuleType("kept_by_the_test"))
        answer = {"pid": os.getpid(), "answer": work(kept)}
        yield pa.RecordBatch.from_pydict({"answer": [json.dumps(answer)]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(task, "answer string").collect()
    return json.loads(row["answer"])


def main(path: str) -> dict[str, Any]:
    spark = localqueue.spark.session("local[1,4]")

    def watch(kept: Any) -> None:
        """Note which library reads here."""
        from localqueue.spark.read.sqlite import library as sqlite_read

        def noting(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
            def call(*given: Any) -> Any:
                kept.log.append(name)
                return own(*given)

            return call

        kept.log = []
        for name in ("read_by_adbc", "read_by_sqlite3"):
            setattr(sqlite_read, name, noting(name, getattr(sqlite_read, name)))

    def open_and_put(kept: Any) -> None:
        kept.queue = PersistentQueue("jobs", store_path=path)
        kept.queue.put("opened")

    def put(kept: Any) -> None:
        kept.queue.put("beside")

    def close(kept: Any) -> None:
        kept.queue.close()

    def used(kept: Any) -> list[str]:
        log, kept.log = sorted(set(kept.log)), []
        return log

    def read() -> list[str]:
        rows = spark.read.format("localqueue").options(url=f"sqlite:///{path}").load()
        return sorted(row["value"] for row in rows.select("value").collect())

    def visit() -> None:
        # Whoever closes last removes the -wal; it must see that the worker still has the file.
        with PersistentQueue[str]("jobs", store_path=path) as queue:
            queue.put("visited")

    visit()
    pids = {in_worker(spark, watch)["pid"]}
    steps: dict[str, Any] = {}
    steps["alone"] = [read(), in_worker(spark, used)["answer"]]
    in_worker(spark, open_and_put)
    steps["while it is open"] = [read(), in_worker(spark, used)["answer"]]
    visit()
    in_worker(spark, put)
    steps["after a visit"] = [read(), in_worker(spark, used)["answer"]]
    in_worker(spark, close)
    visit()
    steps["closed"] = [read(), in_worker(spark, used)["answer"]]
    in_worker(spark, open_and_put)
    visit()
    pids.add(in_worker(spark, put)["pid"])
    in_worker(spark, close)
    spark.stop()
    with PersistentQueue[str]("jobs", store_path=path) as queue:
        stored = sorted(message.value for message in queue.peek(100))
        sound = queue.store.check().ok  # type: ignore[attr-defined]
    return {"pids": len(pids), "steps": steps, "stored": stored, "sound": sound}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1])))
