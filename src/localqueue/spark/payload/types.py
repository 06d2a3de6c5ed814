"""What a value of JSON must be to fit a type of Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from localqueue.errors import ConfigurationError

T = TypeVar("T")
_BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_AS_THEY_ARE: dict[type[DataType], set[type]] = {
    BooleanType: {bool, type(None)},
    ByteType: {int, type(None)},
    ShortType: {int, type(None)},
    IntegerType: {int, type(None)},
    LongType: {int, type(None)},
    DoubleType: {float, int, type(None)},
    StringType: {str, type(None)},
}


class Misfit(Exception):
    """What does not fit, in words."""


def check_type(kind: DataType, path: str) -> None:
    """ConfigurationError for a type that no JSON has."""
    match kind:
        case StructType():
            for field in kind.fields:
                check_type(field.dataType, f"{path}.{field.name}" if path else field.name)
        case ArrayType():
            check_type(kind.elementType, f"{path}[]")
        case MapType() if isinstance(kind.keyType, StringType):
            check_type(kind.valueType, f"{path}[]")
        case _ if type(kind) not in _FITTING:
            raise ConfigurationError(
                f"option payloadSchema: JSON has no {kind.simpleString()}, which the field {path!r}"
                " asks for; use string, or the column body"
            )


def fits_as_it_is(values: Sequence[Any], field: StructField) -> bool:
    """Whether these values are of the right type already, but perhaps too large."""
    usual = _AS_THEY_ARE.get(type(field.dataType))
    if usual is None:
        return False
    found = set(map(type, values))
    return found <= usual and (field.nullable or type(None) not in found)


def fit(value: Any, field: StructField, path: str) -> Any:
    """The value as Arrow takes it; Misfit when it is something else than the schema says."""
    where = f"{path}.{field.name}" if path else field.name
    if value is None:
        if not field.nullable:
            raise Misfit(f"field {where!r} is missing or null, and the schema says NOT NULL")
        return None
    return _fit(value, field.dataType, where)


def named(value: Any) -> str:
    """What JSON calls it."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
    return "an object"


def _fit(value: Any, kind: DataType, where: str) -> Any:
    match kind:
        case StructType() if isinstance(value, dict):
            return {field.name: fit(value.get(field.name), field, where) for field in kind.fields}
        case ArrayType() if isinstance(value, list):
            item = StructField("[]", kind.elementType, kind.containsNull)
            return [fit(each, item, where) for each in value]
        case MapType() if isinstance(value, dict):
            item = StructField("[]", kind.valueType, kind.valueContainsNull)
            return [(key, fit(each, item, where)) for key, each in value.items()]
    fitting = _FITTING.get(type(kind))
    found = None if fitting is None else fitting(value, kind)
    if found is None:
        shown = repr(value) if isinstance(value, (int, float, bool)) else named(value)
        raise Misfit(f"field {where!r} is {shown}, not {kind.simpleString().upper()}")
    return found


# --- one for each type: None when the value does not fit ------------------------------------------
def _boolean(value: Any, _: DataType) -> bool | None:
    return value if isinstance(value, bool) else None


def _whole(value: Any, kind: DataType) -> int | None:
    limit = 1 << (_BITS[type(kind)] - 1)
    return value if type(value) is int and -limit <= value < limit else None


def _fractional(value: Any, kind: DataType) -> float | None:
    if type(value) not in (int, float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _text(value: Any, _: DataType) -> str | None:
    return value if isinstance(value, str) else None


def _decimal(value: Any, kind: DataType) -> Decimal | None:
    assert isinstance(kind, DecimalType)
    if type(value) not in (int, float, str):
        return None
    try:
        found = Decimal(str(value))
        exact = found.quantize(Decimal(1).scaleb(-kind.scale))
    except InvalidOperation:
        return None
    fits = exact == found and len(exact.as_tuple().digits) <= kind.precision
    return exact if fits else None


def _date(value: Any, _: DataType) -> date | None:
    return _iso(value, date.fromisoformat)


def _time(value: Any, _: DataType) -> datetime | None:
    found = _iso(value, datetime.fromisoformat)
    return found.replace(tzinfo=UTC) if found is not None and found.tzinfo is None else found


def _time_of_nowhere(value: Any, _: DataType) -> datetime | None:
    found = _iso(value, datetime.fromisoformat)
    return found if found is not None and found.tzinfo is None else None


def _iso(value: Any, read: Callable[[str], T]) -> T | None:
    try:
        return read(value) if isinstance(value, str) else None
    except ValueError:
        return None


_FITTING: dict[type[DataType], Callable[[Any, Any], Any]] = {
    BooleanType: _boolean,
    ByteType: _whole,
    ShortType: _whole,
    IntegerType: _whole,
    LongType: _whole,
    FloatType: _fractional,
    DoubleType: _fractional,
    DecimalType: _decimal,
    StringType: _text,
    DateType: _date,
    TimestampType: _time,
    TimestampNTZType: _time_of_nowhere,
}
