"""Queries that a streaming table can have: each new row gives rows of its own, and is done with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from localqueue.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NEEDS_ALL = {
    "Aggregate": "sums up",
    "Distinct": "looks for equal rows among",
    "Deduplicate": "looks for equal rows among",
    "Window": "compares",
    "GlobalLimit": "counts",
    "Tail": "counts",
    "Offset": "counts",
    "Except": "takes away from",
    "Intersect": "compares",
}


def check_endless(rows: DataFrame, streams: Iterable[str], where: str) -> None:
    """ConfigurationError when a result depends on rows that come later, or came before."""
    frame: Any = rows
    names = tuple(streams)
    nodes = [frame._jdf.queryExecution().analyzed()]
    while nodes:
        node = nodes.pop()
        kind = node.getClass().getSimpleName()
        if kind in _NEEDS_ALL and any(name in node.treeString() for name in names):
            raise ConfigurationError(
                f"{where}: the query {_NEEDS_ALL[kind]} all rows of a stream, which never ends;"
                " make it a materialized view"
            )
        children = node.children()
        nodes += [children.apply(n) for n in range(children.size())]
