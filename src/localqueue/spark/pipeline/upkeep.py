"""Looking after tables: few files instead of many, and nothing older than is wanted."""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from localqueue.errors import StoreError
from localqueue.spark.pipeline.data_file import DataFile
from localqueue.spark.pipeline.definition import Definition
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.parquet_files import COMPRESSION, ROW_GROUP
from localqueue.spark.pipeline.read_table import read_file
from localqueue.spark.pipeline.report.table_facts import table_names
from localqueue.spark.pipeline.table import Table

log = logging.getLogger("localqueue.spark")

LARGE = 128 * 1024 * 1024
"""A file of this many bytes is left as it is."""
TIERS = (64 * 1024, 1024 * 1024, 16 * 1024 * 1024, LARGE)
"""Files are joined with others of their size, so that a row is rewritten a few times at most."""
VACUUM_EVERY = 86_400.0
"""Seconds between two vacuums of a table by pipelines."""
MANY = 16
"""So many files of a size are joined by a pipeline as it goes, with smaller ones between them."""


def compact(table: Table, definition: Definition, *, fewest: int = 2, tiers: bool = False) -> int:
    """Join small files that follow each other; how many files are gone by it.

    The rows stay in their order. Others may append meanwhile; of two who rewrite the table at the
    same time one does nothing. ``tiers`` joins files of about the same size, and smaller ones that
    lie between these: so many of the size that what they become is of the next one.

    Files of two days stay apart, so that retention, which goes by whole files, is a day late at
    most. Those of a day that is over are joined however few they are, and so once.
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

    Rows that share a file with younger ones wait for these; see ``compact``. Time travel and
    readers that have begun see what is gone until ``vacuum``.
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


def vacuum_when_due(table: Table, now: datetime) -> None:
    """Once a day delete the files that the table does not need any more."""
    if now.timestamp() - table.vacuumed_at >= VACUUM_EVERY:
        table.vacuum()


def vacuum_others(lake: Lake, known: Collection[str], now: datetime) -> None:
    """The same for all tables that pipelines have made here, but for those known.

    Views, topics and gaps of any pipeline are among them; tables of strangers are left alone. What
    is wrong with one of them does not disturb who only looks after it: it is logged.
    """
    for name in table_names(lake):
        if name in known:
            continue
        try:
            table = lake.table(name)
            if table is not None and table.is_of_a_pipeline:
                vacuum_when_due(table, now)
        except StoreError as error:
            log.warning("the table %s was not cleaned up: %s", name, error)


def _runs(table: Table, definition: Definition, fewest: int, tiers: bool) -> list[list[str]]:
    """Files that may be joined, each run to one file."""
    listed = table.file_list()
    if listed.num_rows < 2:
        return []
    order = [
        f"min.{name}"
        for name in ("store", "shard", "seq", definition.moment)
        if f"min.{name}" in listed.column_names
    ]
    # Some tables have no order: views that nobody has given a column of it.
    ordered = listed.sort_by([(name, "ascending") for name in order]) if order else listed
    runs: list[list[str]] = []
    days = _days(ordered, definition.moment)
    # What goes on has a time far ahead, which is no day that has begun.
    tomorrow = str(datetime.now(UTC).date() + timedelta(days=1))
    newest = dict(sorted(each for each in set(days) if each[1] <= tomorrow))
    files = zip(days, ordered["path"].to_pylist(), ordered["size_bytes"].to_pylist(), strict=True)
    for (store, day), some in itertools.groupby(files, lambda file: file[0]):
        is_over = tiers and day < newest.get(store, "")
        sized = [_File(name, size, _tier(size, tiers and not is_over)) for _, name, size in some]
        runs += _runs_of_a_day(sized, 2 if is_over else fewest)
    return runs


def _days(listed: pa.Table, moment: str) -> list[tuple[str, str]]:
    """The store and the day of each file's first row; one without a time is with that before it."""
    if f"min.{moment}" not in listed.column_names:
        return [("", "")] * listed.num_rows
    days = pc.strftime(listed[f"min.{moment}"], "%Y-%m-%d").to_pylist()
    has_stores = "min.store" in listed.column_names
    stores = listed["min.store"].to_pylist() if has_stores else [""] * listed.num_rows
    found: list[tuple[str, str]] = []
    for store, day in zip(stores, days, strict=True):
        is_known = day is not None or not found or found[-1][0] != store
        found.append((store or "", day or "") if is_known else found[-1])
    return found


def _runs_of_a_day(files: Sequence[_File], fewest: int) -> list[list[str]]:
    runs: list[list[str]] = []
    taken: set[_File] = set()
    # Sizes on both sides of a limit may follow each other in turns, so a run has smaller ones too.
    for tier in range(len(TIERS)):
        for run in _stretches(files, tier, taken):
            if _count(run, tier) >= fewest:
                for part in _cut(run):
                    if _is_full(part) or _count(part, tier) >= fewest:
                        taken.update(part)
                        runs.append([file.name for file in part])
    return runs


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    size: int
    tier: int


def _stretches(files: Sequence[_File], tier: int, taken: Collection[_File]) -> list[list[_File]]:
    """Files that follow each other and are of this tier or smaller."""
    grouped = itertools.groupby(files, lambda file: file.tier <= tier and file not in taken)
    return [list(some) for is_one, some in grouped if is_one]


def _count(files: Sequence[_File], tier: int) -> int:
    return sum(file.tier == tier for file in files)


def _is_full(files: Sequence[_File]) -> bool:
    """Whether they become a file that is left as it is from then on."""
    return len(files) > 1 and sum(file.size for file in files) >= LARGE


def _tier(size: int, tiers: bool) -> int:
    if not tiers:
        return 0 if size < LARGE else len(TIERS)
    return next((n for n, limit in enumerate(TIERS) if size < limit), len(TIERS))


def _cut(files: Sequence[_File]) -> list[list[_File]]:
    """Runs that are not much larger than LARGE together."""
    runs: list[list[_File]] = [[]]
    total = 0
    for file in files:
        if total >= LARGE:
            runs.append([])
            total = 0
        runs[-1].append(file)
        total += file.size
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
