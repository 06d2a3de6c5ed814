"""Short ways to write rows as Spark does: tasks first, then the driver; and to see what is put."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from localqueue.clock import SYSTEM_CLOCK, StoreTime
from localqueue.codec import JSON_CODEC
from localqueue.spark.options import Options
from localqueue.spark.write.sink_ledger import KIND
from localqueue.spark.write.writer import BatchWriter, StreamWriter
from localqueue.stores.open import open_store
from localqueue.stores.protocol import StoredMessage

Rows = Sequence[Sequence[Any]]


def schema_of(ddl: str) -> StructType:
    """Needs a session: Spark's own parser reads it."""
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def batch_of(schema: StructType, rows: Rows) -> pa.RecordBatch:
    """The rows as Spark hands them to a writer."""
    arrow = to_arrow_schema(schema, timezone="Europe/Berlin")
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, arrow, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def batch_writer(url: str, schema: StructType, **options: str) -> BatchWriter:
    given = {"url": url, **options}
    return BatchWriter(Options.parse(given), schema, False)


def run_tasks(
    writer: BatchWriter | StreamWriter, schema: StructType, *tasks: Rows
) -> list[WriterCommitMessage]:
    """Each of them with its rows; what they tell the driver."""
    return [writer.write(iter([batch_of(schema, rows)])) for rows in tasks]


def write(url: str, ddl: str, *tasks: Rows, **options: str) -> None:
    """Write the rows of these tasks to the queue ``jobs``, unless the options name another."""
    schema = schema_of(ddl)
    if "queue" not in schema.fieldNames():
        options.setdefault("queue", "jobs")
    writer = batch_writer(url, schema, **options)
    writer.commit([*run_tasks(writer, schema, *tasks)])


def numbers(start: int, stop: int) -> list[tuple[str]]:
    """Rows of JSON text, each with a number of its own."""
    return [(json.dumps({"n": n, "text": "x" * 40}),) for n in range(start, stop)]


def messages(url: str, queue: str = "jobs") -> list[StoredMessage]:
    """What waits there, in order of delivery."""
    store = open_store(url)
    try:
        when = StoreTime(SYSTEM_CLOCK, store.open_clock(SYSTEM_CLOCK))
        return store.peek(queue, 1_000_000, now=when.now)
    finally:
        store.close()


def values(url: str, queue: str = "jobs") -> list[Any]:
    return [JSON_CODEC.decode(message.body) for message in messages(url, queue)]


def put_numbers(url: str, queue: str = "jobs") -> list[int]:
    return [value["n"] for value in values(url, queue)]


def ledger(url: str) -> list[dict[str, Any]]:
    """What the sinks of this store remember."""
    store = open_store(url)
    try:
        when = StoreTime(SYSTEM_CLOCK, store.open_clock(SYSTEM_CLOCK))
        return [json.loads(record.value) for record in store.scan_records(KIND, now=when.now)]
    finally:
        store.close()


def staged(store_path: Path) -> list[str]:
    """The files that wait beside the store."""
    folder = store_path.with_name(f"{store_path.name}-staging")
    return sorted(file.name for file in folder.iterdir()) if folder.exists() else []
