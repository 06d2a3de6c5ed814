"""Spark's values as JSON, for payloads that do not come as text.

| Spark | JSON |
|---|---|
| string, boolean, whole numbers, float, double | the same; NaN and infinity are refused |
| decimal | its digits as text: a number would lose some of them |
| timestamp | text, ``2026-01-31T08:00:00.5Z`` in UTC; without time zone the same without ``Z`` |
| date, time | text, ``2026-01-31``, ``08:00:00`` |
| binary | base64 text |
| struct | object; fields that are null are null |
| map | object; its keys must be strings or whole numbers |
| array | array |
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    VarcharType,
)

from localqueue.errors import ConfigurationError

Convert = Callable[[Any], Any]
"""From what Arrow gives for a value that is not null to what JSON has."""

_AS_IT_IS = (
    StringType,
    CharType,
    VarcharType,
    BooleanType,
    IntegralType,
    FloatType,
    DoubleType,
    NullType,
)


def converter(kind: DataType, name: str) -> Convert | None:
    """How values of this type become what JSON has; None when they are that already.

    ConfigurationError for a type that JSON has no form for, which names the column.
    """
    match kind:
        case TimestampType():
            return _instant
        case DateType() | TimeType() | TimestampNTZType():
            return _iso
        case DecimalType():
            return _digits
        case BinaryType():
            return _base64
        case StructType():
            return _struct(kind, name)
        case ArrayType():
            return _array(kind, name)
        case MapType():
            return _map(kind, name)
    if isinstance(kind, _AS_IT_IS):
        return None
    raise ConfigurationError(
        f"the column {name} is of type {kind.simpleString()}, which has no form in JSON; make it"
        " text or leave it out"
    )


def _instant(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def _iso(moment: date | time) -> str:
    return moment.isoformat()


def _digits(number: Decimal) -> str:
    return f"{number:f}"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _struct(kind: StructType, name: str) -> Convert | None:
    needed = {
        field.name: convert
        for field in kind.fields
        if (convert := converter(field.dataType, f"{name}.{field.name}"))
    }

    def struct(fields: dict[str, Any]) -> dict[str, Any]:
        for field, convert in needed.items():
            if (value := fields[field]) is not None:
                fields[field] = convert(value)
        return fields

    return struct if needed else None


def _array(kind: ArrayType, name: str) -> Convert | None:
    convert = converter(kind.elementType, f"{name}[]")
    if convert is None:
        return None

    def array(items: list[Any]) -> list[Any]:
        return [None if item is None else convert(item) for item in items]

    return array


def _map(kind: MapType, name: str) -> Convert:
    if not isinstance(kind.keyType, StringType | IntegralType):
        raise ConfigurationError(
            f"the column {name} has keys of type {kind.keyType.simpleString()}; those of a JSON"
            " object are strings"
        )
    convert = converter(kind.valueType, f"{name}[]") or _same

    def mapping(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
        return {str(key): None if value is None else convert(value) for key, value in pairs}

    return mapping


def _same(value: Any) -> Any:
    return value
