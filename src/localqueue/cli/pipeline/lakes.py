"""What commands need of a lake, or of Spark, and how they say that it is not there."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from localqueue.cli.output import quiet_java, told
from localqueue.errors import StoreMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from localqueue.spark.pipeline.lake import Lake
    from localqueue.spark.pipeline.report.table_facts import TableFacts
    from localqueue.spark.pipeline.table import Table


def table_of(lake: Lake, name: str) -> Table:
    found = lake.table(name)
    if found is None:
        raise StoreMissing(f"{lake.location} has no table {name!r}")
    return found


def some_tables(lake: Lake) -> None:
    from localqueue.spark.pipeline.report.table_facts import table_names

    if not table_names(lake):
        raise StoreMissing(
            f"{lake.location} has no tables of a pipeline; 'localqueue pipeline run"
            " STORE_URL LAKE' makes them"
        )


def spark_session(master: str | None) -> SparkSession:
    from localqueue.spark.sessions.spark_session import session

    _leave_errors_to_us()
    with quiet_java():
        return session(master)


def _leave_errors_to_us() -> None:
    """Spark logs an error in a query, and raises it: here it would be shown twice."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = not told.debug


def facts_of_table(table: TableFacts) -> dict[str, Any]:
    found = asdict(table)
    del found["columns"]
    return found
