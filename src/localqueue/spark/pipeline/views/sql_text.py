"""SQL, as far as it has to be understood: its statements, and which tables they read.

Spark's own parser says so. It is asked through the classic session's JVM.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localqueue.errors import ConfigurationError
from localqueue.spark.pipeline.views.definitions import Kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_READ = re.compile(r"UnresolvedRelation \[([^\]]+)\], \[[^\]]*\], (true|false)")
_LEFT_ALONE = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|--[^\n]*|/\*.*?\*/"""
_KINDS = {
    "CreateMaterializedViewAsSelect": Kind.MATERIALIZED_VIEW,
    "CreateStreamingTableAsSelect": Kind.STREAMING_TABLE,
    "CreateViewCommand": Kind.TEMPORARY_VIEW,
}


@dataclass(frozen=True, slots=True)
class Statement:
    """``CREATE … name AS query``."""

    kind: Kind
    name: str
    query: str
    comment: str
    line: int


def statements(spark: SparkSession, text: str) -> Iterator[Statement]:
    """What a file of SQL defines. ConfigurationError for other statements, Spark's for bad SQL."""
    for line, statement in _pieces(text):
        plan = _parsed(spark, statement)
        kind = _KINDS.get(plan.getClass().getSimpleName())
        if kind is None:
            raise ConfigurationError(
                f"line {line}: only CREATE MATERIALIZED VIEW, CREATE STREAMING TABLE and CREATE"
                " TEMPORARY VIEW, each AS a query, can be written here"
            )
        yield _statement(kind, plan, line)


def tables_read(spark: SparkSession, query: str) -> dict[str, bool]:
    """The names that a query reads from, in lower case, and whether as a stream."""
    found = _READ.findall(_parsed(spark, query).treeString())
    names: dict[str, bool] = {}
    for name, streams in found:
        key = name.strip().lower()
        names[key] = names.get(key, False) or streams == "true"
    return names


def with_streams(query: str, names: Mapping[str, str]) -> str:
    """The query with ``STREAM(table)`` and ``STREAM table`` as reads of what names say."""
    if not names:
        return query
    table = "|".join(re.escape(name) for name in names)
    stream = rf"\bSTREAM\s*(?:\(\s*`?(?P<inside>{table})`?\s*\)|\s`?(?P<after>{table})\b`?)"

    def put(found: re.Match[str]) -> str:
        name = found["inside"] or found["after"]
        return found[0] if name is None else names[name.lower()]

    return re.sub(f"{_LEFT_ALONE}|{stream}", put, query, flags=re.IGNORECASE | re.DOTALL)


def _statement(kind: Kind, plan: Any, line: int) -> Statement:
    if kind is Kind.TEMPORARY_VIEW:
        name, comment = plan.name().table(), plan.comment()
        text = plan.originalText()
        query = text.get() if text.isDefined() else ""
        if plan.viewType().toString() != "LocalTempView":
            raise ConfigurationError(f"line {line}: write CREATE TEMPORARY VIEW, or MATERIALIZED")
    else:
        parts = plan.name().nameParts()
        name, comment = parts.mkString("."), plan.tableSpec().comment()
        query = plan.originalText()
    return Statement(kind, name, query, comment.get() if comment.isDefined() else "", line)


def _parsed(spark: SparkSession, text: str) -> Any:
    session: Any = spark
    return session._jsparkSession.sessionState().sqlParser().parsePlan(text)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """The statements between semicolons, and the line that each begins at."""
    start = 0
    for found in re.finditer(f"{_LEFT_ALONE}|`[^`]*`|;|$(?![\\s\\S])", text, re.DOTALL):
        if found[0] not in (";", ""):
            continue
        piece = text[start : found.start()]
        code = re.sub(r"--[^\n]*|/\*.*?\*/", lambda c: " " * len(c[0]), piece, flags=re.DOTALL)
        if code.strip():
            first = start + len(code) - len(code.lstrip())
            yield text.count("\n", 0, first) + 1, piece.strip()
        start = found.end()
