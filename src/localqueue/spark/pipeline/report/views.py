"""The tables of a lake as temporary views of a session, for SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.minutes import MINUTES
from localqueue.spark.pipeline.read_table import read_table
from localqueue.spark.pipeline.report.table_facts import table_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_views(spark: SparkSession, lake: Lake) -> list[str]:
    """A view for each table, at the version that it has now, and ``hours`` and ``days``.

    Minutes, hours and days have their rates, see ``rates``.
    """
    from localqueue.spark.pipeline import rollups

    views = {}
    for name in table_names(lake):
        table = lake.table(name)
        if table is not None:
            views[name] = read_table(spark, table)
    if MINUTES.name in views:
        minutes = views[MINUTES.name]
        views |= {name: shown(minutes) for name, shown in rollups.SHOWN.items()}
    for name, rows in views.items():
        rows.createOrReplaceTempView(name)
    return list(views)
