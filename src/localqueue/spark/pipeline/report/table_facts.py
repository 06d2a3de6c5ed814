"""What the log of a table tells: its version, its rows, files and bytes, and its last commit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.lake_errors import lake_errors
from localqueue.spark.pipeline.report.definitions import DEFINITIONS
from localqueue.spark.pipeline.report.reading import rows_of, size_of
from localqueue.spark.pipeline.table import Table


@dataclass(frozen=True, slots=True)
class TableFacts:
    name: str
    version: int
    rows: int
    files: int
    bytes: int
    changed_at: datetime | None
    """When its newest commit was made; None when the log does not have it any more."""
    columns: tuple[tuple[str, str], ...]
    """Each column's name and type."""


def facts_of(table: Table) -> TableFacts:
    with lake_errors(f"reading the log of the table {table.name}"):
        newest = table.history(1)
        return TableFacts(
            table.name,
            table.version,
            rows_of(table),
            len(table.files()),
            size_of(table),
            _moment(newest[0].get("timestamp")) if newest else None,
            tuple((field.name, str(field.type)) for field in table.schema),
        )


def tables_of(lake: Lake) -> list[TableFacts]:
    """All tables of the lake; none when there is no lake."""
    found = [table for name in table_names(lake) if (table := lake.table(name)) is not None]
    return [facts_of(table) for table in found]


def table_names(lake: Lake) -> list[str]:
    """The names of its tables, and of what else is there that may be one."""
    with lake_errors(f"listing {lake.location}"):
        names = lake.location.names()
    known = {definition.name: rank for rank, definition in enumerate(DEFINITIONS)}
    visible = [name for name in names if not name.startswith(("_", "."))]
    return sorted(visible, key=lambda name: (known.get(name, len(known)), name))


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
