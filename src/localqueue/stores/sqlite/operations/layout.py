"""The tables of a file that may be damaged: where they begin, and what their rows look like."""

from __future__ import annotations

import contextlib
import math
import re
import sqlite3
from typing import Any, NamedTuple

from localqueue.stores.sqlite.operations.records import Damage
from localqueue.stores.sqlite.operations.trees import Row, Tree
from localqueue.stores.sqlite.sql import schema

ALIKE = frozenset({"body_use", "counter", "ended", "skipped", "span", "topic"})
"""Tables whose rows look like those of others: a row that nothing leads to cannot be told apart."""
SINCE = {"ended": 3, "span": 4}
"""Tables that the first version did not have, and which one brought them."""
SEALED = frozenset({"message", "body"})
"""Tables whose rows are proved by the checksums of messages."""
LARGEST_NUMBER = 2**62


class Column(NamedTuple):
    name: str
    type: str
    needed: bool
    default: Any
    is_key: bool


class Table:
    """A table's columns as the file itself has them: one that was migrated has another order."""

    def __init__(self, name: str, columns: list[Column], tree: Tree) -> None:
        self.name = name
        self.columns = columns
        self.tree = tree
        needed = [n for n, column in enumerate(columns) if column.needed and column.default is None]
        self._fewest = max(needed, default=0) + 1
        """Rows from before a migration lack the columns that it added."""

    def read(self, row: Row) -> dict[str, Any]:
        """The row by its columns' names; Damage when it cannot be one of this table."""
        columns, values = self.columns, row.values
        if not self._fewest <= len(values) <= len(columns):
            raise Damage(f"a row of {self.name} has {len(values)} columns")
        found: dict[str, Any] = {}
        for n, column in enumerate(columns):
            value = values[n] if n < len(values) else column.default
            if n == 0 and self.tree.rowid:
                if value is not None:
                    raise Damage(f"a row of {self.name} does not begin like one")
                value = row.rowid
            if value is not None or column.needed:
                value = _checked(self.name, column, value)
            found[column.name] = value
        return found


def _checked(table: str, column: Column, value: Any) -> Any:
    if value is None:
        raise Damage(f"a row of {table} has no {column.name}")
    expected = _TYPES[column.type]
    if type(value) not in expected:
        raise Damage(f"{column.name} of a row of {table} has a wrong type")
    if column.type == "REAL":
        # SQLite keeps whole numbers as integers.
        value = float(value)
        if not math.isfinite(value):
            raise Damage(f"{column.name} of a row of {table} is no number")
    elif column.type == "INTEGER" and abs(value) > LARGEST_NUMBER:
        raise Damage(f"{column.name} of a row of {table} cannot be so large")
    return value


_TYPES: dict[str, tuple[type, ...]] = {
    "INTEGER": (int,),
    "REAL": (float, int),
    "TEXT": (str,),
    "BLOB": (bytes,),
}


class Layout:
    """Tables and indexes, from what can be read of the file's own description of itself."""

    def __init__(self, described: list[Row], version: int) -> None:
        """``described`` are the rows of the first table: kind, name, table, first page, SQL."""
        self.tables: dict[str, Table] = {}
        self.indexes: dict[str, Tree] = {}
        self.missing: list[str] = []
        """Tables that the file does not describe any more."""
        known = _described(schema())
        found: dict[str, tuple[int, str]] = {}
        for row in described:
            match row.values:
                case ["table", str(name), _, int(root), str(sql)]:
                    found[name] = (root, sql)
                case ["index", str(name), _, int(root), _]:
                    self.indexes[name] = Tree(name, root, rowid=False)
        for name, sql in known.items():
            if name not in found and version >= SINCE.get(name, 0):
                self.missing.append(name)
            own = found[name][1] if name in found else sql
            first = found[name][0] if name in found else None
            columns = _known(_columns(name, own), _columns(name, sql))
            rowid = not sql.endswith("WITHOUT ROWID")
            width = sum(column.is_key for column in columns)
            tree = Tree(name, first, rowid=rowid, width=width, sealed=name in SEALED)
            self.tables[name] = Table(name, columns, tree)


_STATEMENT = re.compile(r"^CREATE TABLE (\w+).*?^\) STRICT[^;]*;", re.MULTILINE | re.DOTALL)


def _described(script: str) -> dict[str, str]:
    """The statements of a schema that make tables."""
    return {found[1]: found[0].rstrip(";") for found in _STATEMENT.finditer(script)}


def _columns(name: str, sql: str) -> list[Column]:
    """What SQLite makes of the statement; empty when it is damaged."""
    db = sqlite3.connect(":memory:")
    with contextlib.closing(db), contextlib.suppress(sqlite3.Error, sqlite3.Warning, ValueError):
        db.execute(sql)
        rows = db.execute(f"PRAGMA table_info({name})").fetchall()
        if all(kind in _TYPES for _, _, kind, _, _, _ in rows):
            return [
                Column(column, kind, bool(needed or key), _default(default), key > 0)
                for _, column, kind, needed, default, key in rows
            ]
    return []


def _known(own: list[Column], known: list[Column]) -> list[Column]:
    """The file's own columns; today's when those are not columns that ever were."""
    names = {column.name: column for column in known}
    strange = [column for column in own if column.name not in names]
    missing = [column for column in known if column.name not in {one.name for one in own}]
    if len(strange) == 1 == len(missing):
        # A single word was damaged: its place tells which one.
        own = [missing[0] if column in strange else column for column in own]
    alike = [(column.type, column.is_key) for column in own] == [
        (names[column.name].type, names[column.name].is_key) if column.name in names else None
        for column in own
    ]
    return own if own and alike else known


def _default(text: str | None) -> Any:
    return None if text is None else int(text)
