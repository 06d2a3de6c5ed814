"""Looking after tables: few files instead of many, and nothing older than is wanted."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from localqueue.spark.pipeline.data_file import DataFile
from localqueue.spark.pipeline.definition import Definition
from localqueue.spark.pipeline.parquet_files import COMPRESSION, ROW_GROUP
from localqueue.spark.pipeline.read_table import read_file
from localqueue.spark.pipeline.table import Table

LARGE = 128 * 1024 * 1024
"""A file of this many bytes is left as it is."""
TIERS = (1024 * 1024, 16 * 1024 * 1024, LARGE)
"""Files are joined with others of their size, so that a row is rewritten a few times at most."""
VACUUM_EVERY = 86_400.0
"""Seconds between two vacuums of a table by pipelines."""
MANY = 16
"""So many files of a size that follow each other are joined by a pipeline as it goes."""


def compact(table: Table, definition: Definition, *, fewest: int = 2, tiers: bool = False) -> int:
    """Join small files that follow each other; how many files are gone by it.

    The rows stay in their order. Others may append meanwhile; of two who rewrite the table at the
    same time one does nothing. ``tiers`` joins only files of about the same size.
    """
    gone = 0
    for names in _runs(table, definition, fewest, tiers):
        joined = _join(table, definition, names)
        if not table.rewrite(names, [joined], same_rows=True):
            table.location.delete(joined.path)
            break
        gone += len(names) - 1
    return gone


def drop_before(table: Table, definition: Definition, moment: datetime) -> int:
    """Let go of files whose rows are all older than this; how many.

    Time travel and readers that have begun see them until ``vacuum``.
    """
    listed = table.file_list()
    if not listed.num_rows:
        return 0
    latest = listed[f"max.{definition.moment}"]
    old = listed.filter(pc.fill_null(pc.less(latest, pa.scalar(moment, latest.type)), False))
    names = old["path"].to_pylist()
    if names and not table.rewrite(names, []):
        # Somebody else has rewritten it; the next time will do.
        return 0
    return len(names)


def _runs(table: Table, definition: Definition, fewest: int, tiers: bool) -> list[list[str]]:
    """Files that may be joined, each run to one file."""
    listed = table.file_list()
    if listed.num_rows < fewest:
        return []
    order = [
        f"min.{name}"
        for name in ("store", "shard", "seq", definition.moment)
        if f"min.{name}" in listed.column_names
    ]
    # Some tables have no order: views that nobody has given a column of it.
    ordered = listed.sort_by([(name, "ascending") for name in order]) if order else listed
    sizes = zip(ordered["path"].to_pylist(), ordered["size_bytes"].to_pylist(), strict=True)
    runs: list[list[str]] = []
    for tier, files in itertools.groupby(sizes, lambda file: _tier(file[1], tiers)):
        if tier < len(TIERS):
            runs += _cut(list(files))
    return [run for run in runs if len(run) >= fewest]


def _tier(size: int, tiers: bool) -> int:
    if not tiers:
        return 0 if size < LARGE else len(TIERS)
    return next((n for n, limit in enumerate(TIERS) if size < limit), len(TIERS))


def _cut(files: Sequence[tuple[str, int]]) -> list[list[str]]:
    """Runs that are not much larger than LARGE together."""
    runs: list[list[str]] = [[]]
    total = 0
    for name, size in files:
        if total >= LARGE:
            runs.append([])
            total = 0
        runs[-1].append(name)
        total += size
    return runs


def _join(table: Table, definition: Definition, names: Sequence[str]) -> DataFile:
    path, schema = f"part-{uuid.uuid4()}.parquet", table.schema
    footers: list[pq.FileMetaData] = []
    with table.location.create(path) as sink:
        with pq.ParquetWriter(
            sink, schema, compression=COMPRESSION, metadata_collector=footers
        ) as writer:
            for rows in _groups(table, names, schema):
                writer.write_table(rows, row_group_size=ROW_GROUP)
        size = sink.tell()
    return DataFile.described(path, size, footers[0], definition.statistics)


def _groups(table: Table, names: Sequence[str], schema: pa.Schema) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    n = 0
    for name in names:
        for batch in read_file(table.location, name, schema):
            waiting.append(batch)
            n += batch.num_rows
            if n >= ROW_GROUP:
                yield pa.Table.from_batches(waiting, schema)
                waiting, n = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema)
