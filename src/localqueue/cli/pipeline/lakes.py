"""What commands need of a lake, or of Spark, and how they say that it is not there."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from localqueue.cli.output import note, told
from localqueue.cli.starting_java import deaf_java, quiet_java
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
    # Spark makes a folder for tables of its own as soon as one is asked for that is not there.
    warehouse = tempfile.mkdtemp(prefix="localqueue-warehouse-")
    atexit.register(shutil.rmtree, warehouse, ignore_errors=True)
    if sys.stderr.isatty():
        note("starting Spark")
    with quiet_java(), deaf_java():
        return session(master, config={"spark.sql.warehouse.dir": warehouse})


def _leave_errors_to_us() -> None:
    """Spark logs an error in a query, and raises it: here it would be shown twice."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = not told.debug


def facts_of_table(table: TableFacts) -> dict[str, Any]:
    found = asdict(table)
    del found["columns"]
    return found
