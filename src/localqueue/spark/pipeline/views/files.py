"""A file of definitions, read: Python as Spark's Declarative Pipelines has it, or SQL."""

from __future__ import annotations

import runpy
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.pipelines.flow import AutoCdcFlow, Flow
from pyspark.pipelines.graph_element_registry import (
    GraphElementRegistry,
    graph_element_registration_context,
)
from pyspark.pipelines.output import MaterializedView, Output, StreamingTable, TemporaryView

from localqueue.errors import ConfigurationError, LocalQueueError
from localqueue.spark.pipeline.views.definitions import Definitions, Kind, Query, View
from localqueue.spark.pipeline.views.problems import first_line
from localqueue.spark.pipeline.views.sql_text import statements

if TYPE_CHECKING:
    from pyspark.pipelines.source_code_location import SourceCodeLocation
    from pyspark.sql import DataFrame, SparkSession

_KINDS: dict[type[Output], Kind] = {
    MaterializedView: Kind.MATERIALIZED_VIEW,
    StreamingTable: Kind.STREAMING_TABLE,
    TemporaryView: Kind.TEMPORARY_VIEW,
}


def check_file(path: Path) -> None:
    """ConfigurationError for a file that is not there, or that cannot be one of definitions."""
    if path.suffix not in (".py", ".sql"):
        raise ConfigurationError(f"views are defined in a file .py or .sql, and not in {path.name}")
    _text(path)


def read_definitions(path: Path, session: Any, spark: SparkSession) -> Definitions:
    """The views that a file defines.

    ``session`` is what Python finds as ``spark``, and what all queries are asked of; ``spark`` is
    the session whose parser reads SQL. ConfigurationError for a file that cannot be meant; it says
    where.
    """
    check_file(path)
    found = Definitions()
    if path.suffix == ".sql":
        _read_sql(path, session.sql, spark, found)
    else:
        _read_python(path, session, found)
    found.check(path.name)
    return found


def _read_sql(
    path: Path, ask: Callable[[str], DataFrame], spark: SparkSession, found: Definitions
) -> None:
    try:
        for each in statements(spark, _text(path)):
            where = f"{path.name}:{each.line}"
            found.add(View(each.name, each.kind, where, each.comment))
            make = _Asked(ask, each.query)
            found.add_query(each.name, Query(each.name, where, make))
    except PySparkException as error:
        raise ConfigurationError(f"{path.name}: {first_line(error)}") from error
    except ConfigurationError as error:
        if str(error).startswith(path.name):
            raise
        raise ConfigurationError(f"{path.name}, {error}") from error


class _Asked:
    def __init__(self, ask: Callable[[str], DataFrame], query: str) -> None:
        self._ask, self._query = ask, query

    def __call__(self) -> DataFrame:
        return self._ask(self._query)


def _read_python(path: Path, session: Any, found: Definitions) -> None:
    try:
        with graph_element_registration_context(_Registry(found, path.name)):
            runpy.run_path(str(path), {"spark": session}, run_name="views")
    except LocalQueueError:
        raise
    except Exception as error:
        where = line_of(error, path)
        raise ConfigurationError(f"{where}: {type(error).__name__}: {first_line(error)}") from error


def line_of(error: BaseException, path: Path) -> str:
    """The file, and the last of its lines on the way to the error."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines = [error.lineno]
    return f"{path.name}:{lines[-1]}" if lines else path.name


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error


class _Registry(GraphElementRegistry):
    """Takes what the decorators of ``pyspark.pipelines`` make."""

    def __init__(self, found: Definitions, file: str) -> None:
        self._found, self._file = found, file

    def register_output(self, output: Output) -> None:
        kind = _KINDS.get(type(output))
        where = self._where(output.source_code_location)
        if kind is None:
            raise ConfigurationError(
                f"{where}: a {type(output).__name__.lower()} is nothing that a lake can keep; use"
                " a materialized view, a streaming table, or Spark's own spark-pipelines"
            )
        for option in ("partition_cols", "cluster_by", "schema", "format"):
            if getattr(output, option, None):
                raise ConfigurationError(
                    f"{where}: {option} cannot be chosen here: tables of a lake are Delta tables"
                    " without partitions, with the columns of their queries"
                )
        self._found.add(View(output.name, kind, where, output.comment or ""))

    def register_flow(self, flow: Flow) -> None:
        where = self._where(flow.source_code_location)
        if flow.spark_conf:
            raise ConfigurationError(f"{where}: settings of Spark are those of the session")
        self._found.add_query(flow.target, Query(flow.name, where, flow.func))

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        raise ConfigurationError(
            f"{self._where(flow.source_code_location)}: changes are not applied to tables here; a"
            " compacted topic keeps the newest value of each key"
        )

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        raise ConfigurationError(f"{self._file}: put SQL into a file of its own, .sql")

    def _where(self, location: SourceCodeLocation) -> str:
        return f"{self._file}:{location.line_number}"
