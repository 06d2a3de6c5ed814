"""Which file of a compacted topic has a key: each has those from its first slot to the next file's.

So a batch writes only those files anew that have keys of it, and a file that grows is cut in two.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from localqueue.spark.pipeline.data_file import DataFile
from localqueue.spark.pipeline.definition import Definition
from localqueue.spark.pipeline.location import Location
from localqueue.spark.pipeline.parquet_files import write_table
from localqueue.spark.pipeline.table import Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LARGEST = 100_000
"""Rows of a file; one that has more by a batch is cut."""
REGION = "region"


@dataclass(frozen=True, slots=True)
class Regions:
    """The files of a table in the order of their slots."""

    names: tuple[str, ...]
    firsts: tuple[int, ...]
    rows: tuple[int, ...]

    @classmethod
    def of(cls, table: Table) -> Regions:
        listed = table.file_list()
        if not listed.num_rows:
            return cls((), (), ())
        files = listed.select(["path", "min.slot", "num_records"]).sort_by("min.slot").to_pydict()
        return cls(*(tuple(files[name]) for name in ("path", "min.slot", "num_records")))

    def number(self) -> Column:
        """The number of the file that a row belongs to, by its slot; 0 when there are none."""
        from pyspark.sql import functions as f

        # What comes before the first file is the first one's.
        borders = f.array(*map(f.lit, self.firsts[1:])).cast("array<bigint>")
        return f.size(f.filter(borders, lambda border: border <= f.col("slot")))

    def files(self, numbers: Collection[int]) -> list[str]:
        return [name for number, name in enumerate(self.names) if number in numbers]

    def rows_in(self, numbers: Collection[int]) -> int:
        return sum(rows for number, rows in enumerate(self.rows) if number in numbers)


def write_regions(
    rows: DataFrame, regions: Regions, location: Location, definition: Definition, n: int
) -> list[DataFile]:
    """Write rows, about ``n`` of them, so that no file has slots of two regions; which files."""
    numbered = rows.select("*", regions.number().alias(REGION))
    parts = -(-n // LARGEST)
    # One part needs no looking for where to cut.
    spread = (
        numbered.coalesce(1) if parts <= 1 else numbered.repartitionByRange(parts, REGION, "slot")
    )
    ordered = spread.sortWithinPartitions(REGION, "slot")
    task = _Write(location, definition.schema, definition.statistics, LARGEST)
    found = ordered.mapInArrow(task, "file string").collect()
    return [DataFile(**json.loads(row.file)) for row in found]


@dataclass(frozen=True, slots=True)
class _Write:
    """What an executor runs: its rows are in order, and a part of the slots is its alone."""

    location: Location
    schema: pa.Schema
    statistics: tuple[str, ...]
    largest: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        some = [batch for batch in batches if batch.num_rows]
        if not some:
            return
        rows = pa.Table.from_batches(some)
        regions, slots = rows[REGION].to_numpy(), rows["slot"].to_numpy()
        edges = [0, *_cuts(regions, slots, self.largest), rows.num_rows]
        columns = rows.select(self.schema.names).cast(self.schema)
        for first, end in pairwise(edges):
            file = write_table(self.location, columns.slice(first, end - first), self.statistics)
            yield pa.RecordBatch.from_pydict({"file": [json.dumps(file.as_dict())]})


def _cuts(regions: npt.NDArray[np.int64], slots: npt.NDArray[np.int64], largest: int) -> list[int]:
    """Where files end: with a region, and after so many rows, but never inside a slot."""
    found, start = list[int](), 0
    edges = np.flatnonzero((np.diff(regions) != 0) | (np.diff(slots) != 0)) + 1
    for at in edges.tolist():
        if regions[at] != regions[at - 1] or at - start >= largest:
            found.append(at)
            start = at
    return found
