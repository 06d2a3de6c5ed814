"""The table of a view: its rows written, and committed with what they were made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from localqueue.errors import ConfigurationError, StoreBusy
from localqueue.failpoints import reach
from localqueue.spark.pipeline.data_file import DataFile
from localqueue.spark.pipeline.definition import Definition
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.parquet_files import Target, write_files
from localqueue.spark.pipeline.table import Table
from localqueue.spark.pipeline.upkeep import MANY, compact
from localqueue.spark.pipeline.views.columns import KIND, AsTheTable, by_number
from localqueue.spark.pipeline.views.definitions import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MADE_OF = "localqueue/view/made-of"
"""The name whose version says of which versions of which tables a materialized view was made."""
TRIES = 20


def table_of(lake: Lake, view: View) -> Table | None:
    """The view's table, if it is there; ConfigurationError when the name is another table's."""
    table = lake.table(view.name)
    if table is None:
        return None
    kind = table.properties.get(KIND)
    if kind is None:
        raise ConfigurationError(
            f"{view.where}: the lake has a table {view.name!r} that is no view; choose another name"
        )
    if kind != view.kind:
        raise ConfigurationError(
            f"{view.where}: {view.name!r} is a {kind} in the lake, and a {view.kind} here; choose"
            f" another name, or delete {table.location}"
        )
    return table


def write(table: Table, definition: Definition, rows: DataFrame) -> list[DataFile]:
    """Files with these rows, not committed yet."""
    fitted = AsTheTable(tuple(rows.columns), definition.schema)
    target = Target(table.name, table.location, definition.schema, definition.statistics, fitted)
    return write_files(rows, [target], by_number).files[table.name]


def discard(table: Table, files: list[DataFile]) -> None:
    for file in files:
        table.location.delete(file.path)


def replace_rows(
    table: Table, definition: Definition, rows: DataFrame, made_of: Mapping[str, object]
) -> int | None:
    """Put these rows in the place of all others, in one commit; how many.

    None when somebody else has changed the table meanwhile, and nothing is changed then.
    """
    files = write(table, definition, rows)
    reach(f"views.before-{table.name}")
    if not table.replace(files, definition, {MADE_OF: _number(made_of)}):
        discard(table, files)
        return None
    reach(f"views.after-{table.name}")
    table.evolve(definition)
    return sum(file.rows for file in files)


def add_rows(
    table: Table, definition: Definition, rows: DataFrame, moves: Mapping[str, int]
) -> int | None:
    """Add these rows and move on to these positions, in one commit; None as above."""
    files = write(table, definition, rows)
    reach(f"views.before-{table.name}")
    if not table.append_for(files, moves):
        discard(table, files)
        return None
    reach(f"views.after-{table.name}")
    compact(table, definition, fewest=MANY, tiers=True)
    return sum(file.rows for file in files)


def is_made_of(table: Table, made_of: Mapping[str, object]) -> bool:
    return table.version_of(MADE_OF) == _number(made_of)


def has_rows_of(table: Table) -> bool:
    """Whether anybody has made the rows of this materialized view."""
    return table.version_of(MADE_OF) != 0


def _number(made_of: Mapping[str, object]) -> int:
    """A commit can carry numbers: this one is of these tables and no others, and never 0."""
    digest = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:7]) + 1


def busy(view: View) -> StoreBusy:
    return StoreBusy(
        f"the table {view.name} was changed by others {TRIES} times before it could be committed;"
        " nothing of it is lost, run again"
    )


def grown(table: Table, definition: Definition) -> Definition:
    """The definition with the columns that only the table has: they stay, with nulls."""
    names = {field.name for field in definition.schema}
    more = [field for field in table.schema if field.name not in names]
    return replace(definition, schema=pa.schema([*definition.schema, *more]))
