"""A table of the lake as a DataFrame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from localqueue.spark.pipeline.location import Location
from localqueue.spark.pipeline.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(
    spark: SparkSession,
    table: Table,
    columns: Sequence[str] | None = None,
    predicate: str | None = None,
) -> DataFrame:
    """The rows of the table, at the version that the object stands at.

    ``predicate`` is SQL over the table's columns. Files that have no such row are not opened, as
    far as the log knows the bounds of those columns.
    """
    frame = read_files(spark, table, table.files(predicate))
    if predicate is not None:
        frame = frame.where(predicate)
    return frame if columns is None else frame.select(*columns)


def read_files(spark: SparkSession, table: Table, names: Sequence[str]) -> DataFrame:
    """The rows of some files of the table, with all its columns."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = table.schema
    shown = from_arrow_schema(_plain(schema))
    if not names:
        return spark.createDataFrame([], shown)
    if table.location.is_read_by_spark:
        paths = [f"{table.location.uri}/{name}" for name in names]
        return spark.read.schema(shown).parquet(*paths)
    # Without a JAR Spark reads no object store, so its tasks read the files by themselves.
    listed = spark.createDataFrame([(name,) for name in names], "name string")
    tasks = min(len(names), 4 * _cores(spark))
    return listed.repartition(tasks).mapInArrow(_Read(table.location, _plain(schema)), shown)


@dataclass(frozen=True, slots=True)
class _Read:
    location: Location
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name in batch["name"].to_pylist():
                yield from read_file(self.location, name, self.schema)


def read_file(location: Location, name: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of one file; columns that it does not have yet are null."""
    with location.open(name) as source, pq.ParquetFile(source) as file:
        there = [column for column in schema.names if column in file.schema_arrow.names]
        for batch in file.iter_batches(columns=there):
            arrays = [
                batch[field.name].cast(field.type)
                if field.name in there
                else pa.nulls(batch.num_rows, field.type)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _plain(schema: pa.Schema) -> pa.Schema:
    """With the ordinary text and bytes types, which every reader of Arrow knows."""
    names = {
        pa.large_string(): pa.string(),
        pa.string_view(): pa.string(),
        pa.large_binary(): pa.binary(),
        pa.binary_view(): pa.binary(),
    }
    return pa.schema([field.with_type(names.get(field.type, field.type)) for field in schema])


def _cores(spark: SparkSession) -> int:
    return int(spark.conf.get("spark.sql.shuffle.partitions", "2") or 2)
