"""A Parquet file that was written for a table, and what a commit has to say about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pyarrow.parquet as pq


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file in a table's folder. It belongs to the table once a commit names it."""

    path: str
    size: int
    rows: int
    statistics: dict[str, Any]
    """As the log has them: numRecords, minValues, maxValues and nullCount by column."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def described(
        cls, path: str, size: int, footer: pq.FileMetaData, columns: Iterable[str]
    ) -> Self:
        """What the footer of the file tells, with the bounds of these columns."""
        bounds = _Bounds()
        wanted = set(columns)
        for group in range(footer.num_row_groups):
            for index in range(footer.num_columns):
                chunk = footer.row_group(group).column(index)
                if chunk.path_in_schema in wanted:
                    bounds.add(chunk)
        return cls(path, size, footer.num_rows, {"numRecords": footer.num_rows} | bounds.shown())


class _Bounds:
    def __init__(self) -> None:
        self._min: dict[str, Any] = {}
        self._max: dict[str, Any] = {}
        self._nulls: dict[str, int] = {}
        self._unknown: set[str] = set()

    def add(self, chunk: pq.ColumnChunkMetaData) -> None:
        name, found = chunk.path_in_schema, chunk.statistics
        if found is None or not found.has_null_count:
            self._unknown.add(name)
            return
        self._nulls[name] = self._nulls.get(name, 0) + found.null_count
        if found.has_min_max:
            self._min[name] = min(self._min.get(name, found.min), found.min)
            self._max[name] = max(self._max.get(name, found.max), found.max)
        elif found.null_count < chunk.num_values:
            self._unknown.add(name)

    def shown(self) -> dict[str, Any]:
        known = self._nulls.keys() - self._unknown
        return {
            "minValues": {n: _lower(v) for n, v in self._min.items() if n in known},
            "maxValues": {n: _upper(v) for n, v in self._max.items() if n in known},
            "nullCount": {n: v for n, v in self._nulls.items() if n in known},
        }


def _lower(value: Any) -> Any:
    return _shown(value - _beyond_millisecond(value)) if isinstance(value, datetime) else value


def _upper(value: Any) -> Any:
    """Not below the value: some readers cut bounds to milliseconds."""
    if isinstance(value, datetime) and (rest := _beyond_millisecond(value)):
        return _shown(value - rest + timedelta(milliseconds=1))
    return _shown(value) if isinstance(value, datetime) else value


def _beyond_millisecond(value: datetime) -> timedelta:
    return timedelta(microseconds=value.microsecond % 1000)


def _shown(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
