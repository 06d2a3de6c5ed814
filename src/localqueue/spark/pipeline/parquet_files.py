"""Writing the rows of a DataFrame into Parquet files of several tables, in one pass.

Executors write, the driver commits: ``write_files`` runs one job in which every task reads its rows
once and writes one file for each table that has some of them. What a task reports is its files and
how far it read; a task that is lost, repeated or speculative leaves files that nobody commits.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from localqueue.spark.pipeline.data_file import DataFile
from localqueue.spark.pipeline.location import Location
from localqueue.spark.pipeline.places import Place, Positions
from localqueue.spark.pipeline.summaries import Summary, packed, together

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_GROUP = 131_072
"""Rows that are gathered before they are written: Arrow batches from Spark are much smaller."""

COMPRESSION = "zstd"

Rows = Callable[[pa.RecordBatch], pa.RecordBatch]
"""From the rows that a task reads to the rows of one table. It runs on executors."""


@dataclass(frozen=True, slots=True)
class Target:
    """A table that files are written for."""

    table: str
    location: Location
    schema: pa.Schema
    statistics: tuple[str, ...]
    rows: Rows
    floors: Mapping[Place, int] = field(default_factory=dict)
    """Rows at or below these positions are in the table already, and are left out."""


@dataclass(frozen=True, slots=True)
class Written:
    """What the tasks of one job have written and seen."""

    files: dict[str, list[DataFile]]
    """By table; also for a table that got no rows."""
    positions: Positions
    """The greatest seq that was read of each journal, whichever rows were kept."""
    rows: int
    """How many rows were read."""
    summaries: Mapping[str, pa.Table] = field(default_factory=dict)
    """By table; those of all tasks together."""

    def discard(self, table: str, location: Location) -> None:
        """These files will not be committed."""
        for file in self.files[table]:
            location.delete(file.path)


def write_files(
    frame: DataFrame,
    targets: Sequence[Target],
    prepare: Rows,
    summaries: Sequence[Summary] = (),
) -> Written:
    """Run the job. ``prepare`` makes of the frame's rows those that the targets expect.

    Prepared rows have the columns ``store``, ``shard`` and ``seq`` where they are of a journal.
    """
    task = _Task(tuple(targets), prepare, tuple(summaries))
    reports = [json.loads(row.report) for row in frame.mapInArrow(task, "report string").collect()]
    files: dict[str, list[DataFile]] = {target.table: [] for target in targets}
    positions: dict[Place, int] = {}
    for report in reports:
        for table, written in report["files"].items():
            files[table] += [DataFile(**file) for file in written]
        for store, shard, seq in report["positions"]:
            place = Place(store, shard)
            positions[place] = max(seq, positions.get(place, 0))
    summed = {
        summary.table: together([report["summaries"][summary.table] for report in reports])
        for summary in summaries
        if reports
    }
    return Written(files, positions, sum(report["rows"] for report in reports), summed)


@dataclass(frozen=True, slots=True)
class _Task:
    """What an executor runs: Arrow batches in, one report out."""

    targets: tuple[Target, ...]
    prepare: Rows
    summaries: tuple[Summary, ...] = ()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen = _Seen()
        with ExitStack() as open_files:
            writers = [_Writer(target, open_files) for target in self.targets]
            sums = [(summary, summary.begin()) for summary in self.summaries]
            for batch in batches:
                prepared = self.prepare(batch)
                seen.add(prepared)
                for writer in writers:
                    writer.add(prepared)
                for summary, summing in sums:
                    summing.add(summary.rows(above(prepared, summary.floors)))
            for writer in writers:
                writer.flush()
        files = {writer.target.table: writer.files() for writer in writers}
        summed = {summary.table: packed(summing.result()) for summary, summing in sums}
        report = {"files": files, "positions": seen.shown(), "rows": seen.rows}
        text = json.dumps(report | {"summaries": summed})
        yield pa.RecordBatch.from_pydict({"report": [text]})


class _Seen:
    """How far a task has read."""

    def __init__(self) -> None:
        self.rows = 0
        self._last: dict[tuple[str, str], int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        if not batch.num_rows or "seq" not in batch.schema.names:
            return
        table = pa.Table.from_batches([batch.select(["store", "shard", "seq"])])
        found = table.group_by(["store", "shard"]).aggregate([("seq", "max")])
        for row in found.to_pylist():
            place = row["store"], row["shard"]
            self._last[place] = max(row["seq_max"], self._last.get(place, 0))

    def shown(self) -> list[tuple[str, str, int]]:
        return [(store, shard, seq) for (store, shard), seq in self._last.items()]


class _Writer:
    """The file of one table in one task, made when there is a first row."""

    def __init__(self, target: Target, open_files: ExitStack) -> None:
        self.target = target
        self._open_files = open_files
        self._waiting: list[pa.RecordBatch] = []
        self._n = 0
        self._parquet: pq.ParquetWriter | None = None
        self._path = f"part-{uuid.uuid4()}.parquet"
        self._sink: Any = None
        self._footers: list[pq.FileMetaData] = []
        self._size = 0

    def add(self, prepared: pa.RecordBatch) -> None:
        rows = self.target.rows(above(prepared, self.target.floors))
        if rows.num_rows:
            self._waiting.append(rows)
            self._n += rows.num_rows
            if self._n >= ROW_GROUP:
                self._write()

    def flush(self) -> None:
        if self._n:
            self._write()
        if self._parquet is not None:
            self._parquet.close()
            self._size = self._sink.tell()

    def files(self) -> list[dict[str, Any]]:
        if self._parquet is None:
            return []
        (footer,) = self._footers
        described = DataFile.described(self._path, self._size, footer, self.target.statistics)
        return [described.as_dict()]

    def _write(self) -> None:
        if self._parquet is None:
            self._sink = self._open_files.enter_context(self.target.location.create(self._path))
            self._parquet = pq.ParquetWriter(
                self._sink,
                self.target.schema,
                compression=COMPRESSION,
                metadata_collector=self._footers,
            )
        table = pa.Table.from_batches(self._waiting, schema=self.target.schema)
        self._parquet.write_table(table, row_group_size=ROW_GROUP)
        self._waiting, self._n = [], 0


def write_table(location: Location, rows: pa.Table, statistics: Sequence[str]) -> DataFile:
    """A file with these rows, written here and now."""
    path, footers = f"part-{uuid.uuid4()}.parquet", list[pq.FileMetaData]()
    with location.create(path) as sink:
        pq.write_table(rows, sink, compression=COMPRESSION, metadata_collector=footers)
        size = sink.tell()
    return DataFile.described(path, size, footers[0], statistics)


def above(batch: pa.RecordBatch, floors: Mapping[Place, int]) -> pa.RecordBatch:
    """The rows that are after these positions."""
    for place, floor in floors.items():
        old = pc.less_equal(batch["seq"], floor)
        if not batch.num_rows or not pc.any(old).as_py():
            continue
        here = pc.and_(pc.equal(batch["store"], place.store), pc.equal(batch["shard"], place.shard))
        batch = batch.filter(pc.invert(pc.and_(here, old)))
    return batch
