"""Columns of a table, read by this process alone: no session of Spark is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.lake_errors import lake_errors
from localqueue.spark.pipeline.read_table import read_file
from localqueue.spark.pipeline.table import Table


def read_columns(
    table: Table,
    names: Sequence[str],
    moment: str,
    since: datetime | None = None,
    until: datetime | None = None,
) -> pa.Table:
    """These columns of the rows whose ``moment`` is in [since, until); nulls for unknown ones.

    Files whose bounds are outside are not opened, and columns that are not named not read.
    """
    there = table.schema
    kinds = {name: there.field(name).type for name in names if name in there.names}
    schema = pa.schema([(name, kinds.get(name, pa.null())) for name in names])
    parts = []
    with lake_errors(f"reading the table {table.name}"):
        for file in table.files(_within(moment, since, until)):
            for batch in read_file(table.location, file, schema):
                rows = pa.Table.from_batches([batch], schema)
                if since is not None:
                    rows = rows.filter(pc.greater_equal(rows[moment], _at(since)))
                if until is not None:
                    rows = rows.filter(pc.less(rows[moment], _at(until)))
                parts.append(rows)
    return pa.concat_tables(parts) if parts else schema.empty_table()


def bounds(
    table: Table, moment: str, since: datetime | None = None, until: datetime | None = None
) -> tuple[float, float] | None:
    """The first and the last moment of the table inside these limits, as far as the log knows."""
    files = table.file_list()
    if not files.num_rows or f"min.{moment}" not in files.column_names:
        return None
    first = pc.min(files[f"min.{moment}"]).as_py()
    last = pc.max(files[f"max.{moment}"]).as_py()
    if first is None or last is None:
        return None
    first = max(first, since) if since is not None else first
    last = min(last, until) if until is not None else last
    return (first.timestamp(), last.timestamp()) if first <= last else None


def rows_of(table: Table) -> int:
    """How many rows the table has, as its log says."""
    files = table.file_list()
    return pc.sum(files["num_records"]).as_py() or 0 if files.num_rows else 0


def size_of(table: Table) -> int:
    """How many bytes its files have together."""
    files = table.file_list()
    return pc.sum(files["size_bytes"]).as_py() or 0 if files.num_rows else 0


def total(lake: Lake, name: str) -> int:
    """The rows of a table that may not exist."""
    table = lake.table(name)
    return rows_of(table) if table is not None else 0


def numbers(column: pa.ChunkedArray, missing: float = 0.0) -> npt.NDArray[np.float64]:
    """A column of numbers, with this where it has none."""
    filled = pc.fill_null(column.cast(pa.float64()), missing)
    return np.asarray(filled.to_numpy(), np.float64)


def seconds(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """A column of times as seconds since 1970; NaN where it has none."""
    micros = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return numbers(micros, float("nan")) / 1e6


@dataclass(frozen=True, slots=True)
class Words:
    """A column of few different texts: the number of each row's, and the texts."""

    numbers: npt.NDArray[np.int64]
    texts: list[str | None]

    def among(self, *texts: str | None) -> npt.NDArray[np.bool_]:
        """The rows that have one of these."""
        wanted = [n for n, text in enumerate(self.texts) if text in texts]
        found = np.zeros(len(self.texts) + 1, np.bool_)
        found[wanted] = True
        return found[self.numbers]

    def __getitem__(self, rows: slice | npt.NDArray[np.int64]) -> Words:
        return Words(self.numbers[rows], self.texts)


def words(column: pa.ChunkedArray) -> Words:
    whole = column.cast(pa.string()).combine_chunks()
    encoded = whole.dictionary_encode(null_encoding="encode")
    return Words(np.asarray(encoded.indices, np.int64), encoded.dictionary.to_pylist())


def _within(moment: str, since: datetime | None, until: datetime | None) -> str | None:
    limits = []
    if since is not None:
        limits.append(f"{moment} >= '{_text(since)}'")
    if until is not None:
        limits.append(f"{moment} < '{_text(until)}'")
    return " AND ".join(limits) or None


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()


def _at(moment: datetime) -> pa.Scalar:
    return pa.scalar(moment, pa.timestamp("us", tz="UTC"))
