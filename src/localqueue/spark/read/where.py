"""The option ``where``: which rows to read, in the words of SQL, answered by the store.

Conditions on columns joined by AND: comparisons, IN, BETWEEN, LIKE 'start%', IS NULL, and NOT
before any of them. It has the columns of the content, whether they are chosen or not.

It is an option because Spark cannot be given filters for this. Its Python sources may take over
the filters of a query, but it keeps them with the DataFrame: up to 4.3, ``df.where(...)`` leaves
its rows to every other use of ``df``, in the same query and in later ones, which then lack rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
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
from pyspark.sql.types import DataType, DoubleType, StringType, TimestampType

from localqueue.errors import ConfigurationError

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
    r"|`(?P<quoted>[^`]+)`|(?P<word>\w+)|(?P<sign><=>|<>|!=|<=|>=|==|[=<>(),]))"
)
_SIGNS: dict[str, Callable[[tuple[str, ...], Any], Filter]] = {
    "=": EqualTo,
    "==": EqualTo,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
    "<": LessThan,
    "<=": LessThanOrEqual,
    "<>": lambda path, value: Not(EqualTo(path, value)),
    "!=": lambda path, value: Not(EqualTo(path, value)),
}


def parse_where(text: str, columns: Mapping[str, DataType]) -> list[Filter]:
    """The conditions, all of which a row must meet; ConfigurationError when one cannot be read."""
    parser = _Parser(text, columns)
    found = parser.condition()
    while parser.takes("AND"):
        found += parser.condition()
    parser.end()
    return found


class _Parser:
    """Goes through the text once, from left to right."""

    def __init__(self, text: str, columns: Mapping[str, DataType]) -> None:
        self._text = text
        self._columns = columns
        self._tokens = self._split()
        self._at = 0

    def condition(self) -> list[Filter]:
        if self.takes("NOT"):
            found = self.condition()
            if len(found) > 1:
                raise self._wrong("NOT before BETWEEN; write column < a, or column > b")
            return [Not(found[0])]
        if self.takes("("):
            found = self.condition()
            while self.takes("AND"):
                found += self.condition()
            self._expect(")")
            return found
        return self._comparison()

    def takes(self, word: str) -> bool:
        """Go past this word, if it comes next."""
        kind, found = self._next()
        if kind in ("word", "sign") and found.upper() == word:
            self._at += 1
            return True
        return False

    def end(self) -> None:
        kind, found = self._next()
        if kind == "word" and found.upper() == "OR":
            raise self._wrong("OR, which it cannot answer; read all and filter the DataFrame")
        if kind:
            raise self._wrong(f"{found!r}, where AND or the end should be")

    def _comparison(self) -> list[Filter]:
        column = self._column()
        path = (column,)
        if self.takes("IS"):
            negated = self.takes("NOT")
            self._expect("NULL")
            return [IsNotNull(path) if negated else IsNull(path)]
        if self.takes("NOT"):
            return [Not(self._in_or_like(column))]
        if self.takes("BETWEEN"):
            low = self._literal(column)
            self._expect("AND")
            return [GreaterThanOrEqual(path, low), LessThanOrEqual(path, self._literal(column))]
        kind, sign = self._next()
        if kind == "sign" and sign in _SIGNS:
            self._at += 1
            return [_SIGNS[sign](path, self._literal(column))]
        return [self._in_or_like(column)]

    def _in_or_like(self, column: str) -> Filter:
        if self.takes("IN"):
            self._expect("(")
            values = [self._literal(column)]
            while self.takes(","):
                values.append(self._literal(column))
            self._expect(")")
            return In((column,), tuple(values))
        if self.takes("LIKE"):
            pattern = self._literal(column)
            if not isinstance(pattern, str) or not re.fullmatch(r"[^%_\\]*%", pattern):
                raise self._wrong(f"LIKE {pattern!r}; only LIKE 'start%' is answered")
            return StringStartsWith((column,), pattern[:-1])
        raise self._wrong(f"{self._next()[1]!r} after {column}, where =, IN or the like should be")

    def _column(self) -> str:
        kind, name = self._next()
        if kind not in ("word", "quoted") or name not in self._columns:
            known = ", ".join(self._columns)
            raise self._wrong(f"{name!r}, which is no column; there are {known}")
        self._at += 1
        return name

    def _literal(self, column: str) -> Any:
        """A value of the column's type."""
        kind, found = self._next()
        if kind == "word" and found.upper() == "TIMESTAMP":
            self._at += 1
            kind, found = self._next()
        value = _value(kind, found, self._columns[column])
        if value is None:
            wanted = self._columns[column].simpleString()
            raise self._wrong(f"{found!r}, which is no {wanted} to compare {column} with")
        self._at += 1
        return value

    def _expect(self, word: str) -> None:
        if not self.takes(word):
            raise self._wrong(f"{self._next()[1]!r}, where {word} should be")

    def _next(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def _split(self) -> list[tuple[str, str]]:
        tokens, at = [], 0
        while self._text[at:].strip():
            found = _TOKEN.match(self._text, at)
            if found is None or found.lastgroup is None:
                raise self._wrong(repr(self._text[at:].strip()))
            tokens.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()
        return tokens

    def _wrong(self, what: str) -> ConfigurationError:
        return ConfigurationError(f"option where: {self._text!r} has {what}")


def _value(kind: str, found: str, wanted: DataType) -> Any:
    """None when such a token is no value of this type."""
    match wanted:
        case StringType() if kind == "text":
            return _unquoted(found)
        case TimestampType() if kind == "text":
            return _moment(_unquoted(found))
        case DoubleType() if kind == "number":
            return float(found)
        case StringType() | TimestampType() | DoubleType():
            return None
    return int(found) if kind == "number" and re.fullmatch(r"[-+]?\d+", found) else None


def _unquoted(found: str) -> str:
    return found[1:-1].replace("''", "'")


def _moment(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
