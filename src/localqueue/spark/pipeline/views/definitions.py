"""What a file defines: views by name, each with the queries that it is made of."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from localqueue.errors import ConfigurationError
from localqueue.spark.pipeline.report.definitions import RESERVED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class Kind(StrEnum):
    """What becomes of a query's rows."""

    MATERIALIZED_VIEW = "materialized view"
    """A table that is the result of its query, replaced when that may be another one."""
    STREAMING_TABLE = "streaming table"
    """A table to which the rows are added that come of new rows."""
    TEMPORARY_VIEW = "temporary view"
    """No table: a name for others of the file."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query, to be asked of the session that its file was given."""

    name: str
    where: str
    """The file and the line."""
    make: Callable[[], DataFrame]


@dataclass(frozen=True, slots=True)
class View:
    name: str
    kind: Kind
    where: str
    comment: str = ""
    queries: list[Query] = field(default_factory=list)


class Definitions:
    """The views of one file, by their names, which have no case."""

    def __init__(self) -> None:
        self.views: dict[str, View] = {}

    def add(self, view: View) -> None:
        """ConfigurationError for a name that is taken, or that no view can have."""
        key = view.name.lower()
        if key in RESERVED:
            raise ConfigurationError(
                f"{view.where}: a pipeline has a table {key!r} of its own; call the {view.kind}"
                " something else"
            )
        if not _NAME.fullmatch(view.name):
            raise ConfigurationError(
                f"{view.where}: {view.name!r} cannot name a table of a lake; use letters, digits"
                " and '_', a letter first"
            )
        if key in self.views:
            raise ConfigurationError(
                f"{view.where}: {view.name!r} is there already, in {self.views[key].where}"
            )
        self.views[key] = view

    def add_query(self, target: str, query: Query) -> None:
        """One more query of a view; ConfigurationError when there is no such view."""
        view = self.views.get(target.lower())
        if view is None:
            raise ConfigurationError(f"{query.where}: there is no table {target!r} to add rows to")
        if view.queries and view.kind is not Kind.STREAMING_TABLE:
            raise ConfigurationError(
                f"{query.where}: the {view.kind} {view.name!r} has a query already; only a"
                " streaming table can have several"
            )
        if any(other.name == query.name for other in view.queries):
            raise ConfigurationError(
                f"{query.where}: {view.name!r} has a flow called {query.name!r} already"
            )
        view.queries.append(query)

    def check(self, file: str) -> None:
        """ConfigurationError for a file that defines nothing, or a table without a query."""
        if not self.views:
            raise ConfigurationError(f"{file} defines no views")
        for view in self.views.values():
            if not view.queries:
                raise ConfigurationError(
                    f"{view.where}: no query adds rows to {view.name!r}; write an append_flow"
                )
