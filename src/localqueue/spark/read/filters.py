"""Which filters the store answers exactly, and what they are in the SQL of a file.

The rows are those that Spark would choose by the same filter: SQL has the three truth values of
Spark, and compares text byte by byte as Spark does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

MOST_VALUES = 1000
"""Of an ``IN``; more of them are not answered."""

_COMPARISONS: dict[type[Filter], str] = {
    EqualTo: "=",
    EqualNullSafe: "IS",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Plain:
    """A column that is an SQL expression, and how a literal of Spark becomes one of SQL."""

    sql: str
    literal: Callable[[Any], str | None]
    is_text: bool = False

    def condition(self, given: Filter) -> str | None:
        match given:
            case Not(child):
                inner = self.condition(child)
                return None if inner is None else f"NOT ({inner})"
            case IsNull():
                return f"{self.sql} IS NULL"
            case IsNotNull():
                return f"{self.sql} IS NOT NULL"
            case In(value=values):
                return self._any_of(values)
            case StringStartsWith(value=start) if self.is_text and isinstance(start, str):
                return _starts_with(self.sql, start.encode())
        sign = _COMPARISONS.get(type(given))
        if sign is None:
            return None
        value = getattr(given, "value", None)
        literal = None if value is None else self.literal(value)
        return None if literal is None else f"{self.sql} {sign} {literal}"

    def _any_of(self, values: Sequence[Any]) -> str | None:
        literals = ["NULL" if value is None else self.literal(value) for value in values]
        known = [literal for literal in literals if literal is not None]
        if len(known) < len(literals) or not 0 < len(known) <= MOST_VALUES:
            return None
        return f"{self.sql} IN ({', '.join(known)})"


@dataclass(frozen=True, slots=True)
class Word:
    """A column with few values, which are small numbers in the file: every filter is answered."""

    sql: str
    words: Mapping[int, str]

    def condition(self, given: Filter) -> str | None:
        numbers = self.numbers(given)
        if numbers is None:
            return None
        among = f"{self.sql} IN ({', '.join(map(str, numbers))})"
        return f"({among} OR {self.sql} IS NULL)" if holds(given, None) else among

    def numbers(self, given: Filter) -> list[int] | None:
        """The numbers whose words the filter takes; None when that cannot be told."""
        try:
            return [number for number, word in self.words.items() if holds(given, word)]
        except (NotImplementedError, TypeError):
            return None


@dataclass(frozen=True, slots=True)
class Identifier:
    """A column of public ids: equality with ids is a question about numbers, which has indexes."""

    find: Callable[[Sequence[str]], str]
    """The condition that the id is one of these."""

    def condition(self, given: Filter) -> str | None:
        match given:
            case EqualTo(value=str(one)) | EqualNullSafe(value=str(one)):
                return self.find([one])
            case In(value=values) if 0 < len(values) <= MOST_VALUES:
                texts = [value for value in values if isinstance(value, str)]
                return self.find(texts) if texts else None
        return None


Column = Plain | Word | Identifier


def pushed(given: Filter, columns: Mapping[str, Column]) -> str | None:
    """The filter as a condition in SQL; None when the store cannot answer it."""
    column = columns.get(column_of(given) or "")
    return None if column is None else column.condition(given)


def column_of(given: Filter) -> str | None:
    """The name of the column that the filter is about; None when it is a part of one."""
    while isinstance(given, Not):
        given = given.child
    path: tuple[str, ...] = getattr(given, "attribute", ())
    return path[0] if len(path) == 1 else None


def holds(given: Filter, value: str | None) -> bool | None:
    """Whether a filter is true of a value: True, False, or None as SQL's NULL."""
    match given:
        case Not(child):
            inner = holds(child, value)
            return None if inner is None else not inner
        case IsNull():
            return value is None
        case IsNotNull():
            return value is not None
        case EqualNullSafe(value=other):
            return bool(value == other)
    if value is None:
        return None
    match given:
        case EqualTo(value=other):
            return None if other is None else bool(value == other)
        case In(value=others):
            return True if value in others else None if None in others else False
        case StringStartsWith(value=start):
            return value.startswith(start)
        case GreaterThan(value=other):
            return bool(value > other)
        case GreaterThanOrEqual(value=other):
            return bool(value >= other)
        case LessThan(value=other):
            return bool(value < other)
        case LessThanOrEqual(value=other):
            return bool(value <= other)
    raise NotImplementedError


# --- literals: text in hexadecimal, so that it cannot end one ----------------------------------
def text(value: Any) -> str | None:
    return f"CAST(x'{value.encode().hex()}' AS TEXT)" if isinstance(value, str) else None


def number(value: Any) -> str | None:
    return str(value) if type(value) is int and -(2**63) < value < 2**63 else None


def seconds(value: Any) -> str | None:
    # Neither NaN nor infinity has a literal.
    return repr(value) if type(value) is float and value - value == 0 else None


def time(value: Any) -> str | None:
    """A moment in microseconds, as ``micros`` makes them."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return str((value - _EPOCH) // _MICROSECOND)


def micros(sql: str) -> str:
    """A time of the store in microseconds, as ``arrow_columns.timestamps`` rounds it."""
    return f"CAST(({sql}) * 1000000.0 + 0.5 AS INTEGER)"


def _starts_with(sql: str, start: bytes) -> str:
    text = f"CAST({sql} AS BLOB)"
    if not start:
        return f"{text} >= x''"
    # UTF-8 has no byte 255, so there is always a next one.
    after = start[:-1] + bytes([start[-1] + 1])
    return f"({text} >= x'{start.hex()}' AND {text} < x'{after.hex()}')"
