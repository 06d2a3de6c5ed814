"""``register(spark)``: a session learns ``format("localqueue")``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from weakref import WeakSet

from pyspark.errors import AnalysisException

from localqueue.spark.data_source import LocalQueueSource
from localqueue.spark.sessions.redaction import redact
from localqueue.spark.sessions.shipped_source import shipped_source
from localqueue.spark.sessions.shipping import package_zip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

_registered: WeakSet[SparkSession] = WeakSet()


def register(spark: SparkSession) -> None:
    """Make ``format("localqueue")`` known to this session; a second call does nothing.

    Classic sessions and Spark Connect. Where code runs on other machines the package is sent there,
    so that executors need PyArrow and the other libraries of ``localqueue[spark]``, but not
    ``localqueue`` itself. From now on passwords in URLs are redacted in what Spark shows
    (``spark.sql.redaction.string.regex``).
    """
    if spark in _registered:
        return
    source = shipped_source(package_zip().name) if ship(spark) else LocalQueueSource
    redact(spark)
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        _register_while_active(spark, source)
    _registered.add(spark)


def _register_while_active(spark: SparkSession, source: type[DataSource]) -> None:
    """Spark looks for the name in the active session, which may be another one that has it."""
    before = spark.getActiveSession()
    _activate(spark)
    spark.dataSource.register(source)
    if before is not None:
        _activate(before)


def _activate(spark: SparkSession) -> None:
    # The one public call that leaves its session active.
    spark.createDataFrame([], "nothing int")


def ship(spark: SparkSession) -> bool:
    """Send this package to where the session's tasks run; whether that was needed.

    A local master that runs the driver's Python has it already. Equal contents are sent once.
    """
    if is_connect(spark):
        spark.addArtifacts(str(package_zip()), pyfile=True)
        return True
    context = spark.sparkContext
    if _is_local(context.master or "") and context.pythonExec == sys.executable:
        return False
    if package_zip().name not in (context._python_includes or ()):
        context.addPyFile(str(package_zip()))
    return True


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def is_connect(spark: SparkSession) -> bool:
    """Whether this is a session of Spark Connect, which has no Spark context."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")
