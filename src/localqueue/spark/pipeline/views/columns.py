"""The columns of a query as those of a Delta table."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    MapType,
    NullType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from localqueue.errors import ConfigurationError
from localqueue.spark.pipeline.definition import MOMENT, Definition
from localqueue.spark.pipeline.views.definitions import View

KIND = "localqueue.view"
"""The property that says of a table which kind of view it is."""

_NO_NAME = frozenset(" ,;{}()\n\t=")
_NO_COLUMN = (NullType, DayTimeIntervalType, YearMonthIntervalType, VariantType)
_BOUNDED = 8
"""So many columns have their smallest and greatest values in the log."""


def definition_of(view: View, schema: StructType) -> Definition:
    """The view's table, with these columns; ConfigurationError for one that no table can have."""
    from pyspark.sql.pandas.types import to_arrow_schema

    where, seen = view.where, set[str]()
    for field in schema:
        if not field.name or _NO_NAME & set(field.name):
            raise ConfigurationError(
                f"{where}: the column {field.name!r} needs another name; write AS and a name of"
                " letters, digits and '_'"
            )
        if field.name.lower() in seen:
            raise ConfigurationError(f"{where}: there are several columns {field.name!r}")
        seen.add(field.name.lower())
        _check_type(field.name, field.dataType, where)
    arrow = pa.schema([_loose_field(field) for field in to_arrow_schema(schema, timezone="UTC")])
    bounded = [field.name for field in arrow if _has_bounds(field.type)][:_BOUNDED]
    kind = (KIND, view.kind.value)
    return Definition(view.name, arrow, view.comment, tuple(bounded), "", properties=(kind,))


def _check_type(name: str, kind: DataType, where: str) -> None:
    if isinstance(kind, _NO_COLUMN):
        raise ConfigurationError(
            f"{where}: a table cannot keep the column {name!r} of type {kind.simpleString()}; cast"
            " it"
        )
    inner: list[DataType] = []
    if isinstance(kind, ArrayType):
        inner = [kind.elementType]
    elif isinstance(kind, MapType):
        inner = [kind.keyType, kind.valueType]
    elif isinstance(kind, StructType):
        inner = [field.dataType for field in kind]
    for each in inner:
        _check_type(name, each, where)


def _loose(kind: pa.DataType) -> pa.DataType:
    """With times as all tables have them, and nulls allowed everywhere.

    Spark's times say the zone of the session, and whether something can be null changes with what
    the optimizer knows.
    """
    if pa.types.is_timestamp(kind) and kind.tz:
        return MOMENT
    if pa.types.is_struct(kind):
        return pa.struct([_loose_field(kind.field(n)) for n in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_loose(kind.key_type), _loose_field(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_loose_field(kind.value_field))
    return kind


def _loose_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _loose(field.type))


def _has_bounds(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def by_number(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with numbers for names: a column ``seq`` of a view is no position of a journal."""
    return pa.RecordBatch.from_arrays(batch.columns, [str(n) for n in range(batch.num_columns)])


@dataclass(frozen=True, slots=True)
class AsTheTable:
    """Rows of a query, by number, with the names and types that the table has.

    Columns that only the table has are null. It runs on executors.
    """

    columns: tuple[str, ...]
    schema: pa.Schema

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        places = {name: place for place, name in enumerate(self.columns)}
        arrays = [
            batch.column(places[field.name]).cast(field.type)
            if field.name in places
            else pa.nulls(batch.num_rows, field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
