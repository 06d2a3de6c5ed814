"""Which streaming query a write belongs to, as far as it can be known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from pyspark import TaskContext

_QUERY, _RUN = "sql.streaming.queryId", "spark.jobGroup.id"


class RunningQuery(NamedTuple):
    """The ids of a query and of its present run; None where a job is no part of a query."""

    query: str | None = None
    run: str | None = None


def running_query() -> RunningQuery:
    """In a task: the query that it runs for. Spark tells it to tasks, and not to writers."""
    context = TaskContext.get()
    if context is None:
        return RunningQuery()
    query = context.getLocalProperty(_QUERY)
    return RunningQuery(query, context.getLocalProperty(_RUN) if query else None)


def checkpoint_id(location: str | None) -> str | None:
    """The id of the query whose checkpoint this is; None when it cannot be read from here."""
    if location is None:
        return None
    parts = urlsplit(location)
    path = Path(unquote(parts.path) if parts.scheme == "file" else location)
    try:
        found = json.loads((path / "metadata").read_text())["id"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(found)
