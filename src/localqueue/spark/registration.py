"""``register(spark)``: a session learns ``format("localqueue")``."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from pyspark.errors import AnalysisException

from localqueue.spark.data_source import LocalQueueSource
from localqueue.spark.redaction import redact
from localqueue.spark.shipping import package_zip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_registered: WeakSet[SparkSession] = WeakSet()


def register(spark: SparkSession) -> None:
    """Make ``format("localqueue")`` known to this session; a second call does nothing.

    Classic sessions and Spark Connect. Where code runs on other machines the package is sent there,
    so that executors need PyArrow and the other libraries of ``localqueue[spark]``, but not
    ``localqueue`` itself. From now on filters are pushed down to the store
    (``spark.sql.python.filterPushdown.enabled``) and passwords in URLs are redacted in what Spark
    shows (``spark.sql.redaction.string.regex``).
    """
    if spark in _registered:
        return
    ship(spark)
    redact(spark)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        spark.dataSource.register(LocalQueueSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        _register_while_active(spark)
    _registered.add(spark)


def _register_while_active(spark: SparkSession) -> None:
    """Spark looks for the name in the active session, which may be another one that has it."""
    before = spark.getActiveSession()
    _activate(spark)
    spark.dataSource.register(LocalQueueSource)
    if before is not None:
        _activate(before)


def _activate(spark: SparkSession) -> None:
    # The one public call that leaves its session active.
    spark.createDataFrame([], "nothing int")


def ship(spark: SparkSession) -> None:
    """Send this package to where the session's tasks run; once for equal contents.

    A local master runs in this process's own installation and is sent nothing.
    """
    if is_connect(spark):
        spark.addArtifacts(str(package_zip()), pyfile=True)
        return
    context = spark.sparkContext
    master = context.master or ""
    if master == "local" or master.startswith("local["):
        return
    if package_zip().name not in (context._python_includes or ()):
        context.addPyFile(str(package_zip()))


def is_connect(spark: SparkSession) -> bool:
    """Whether this is a session of Spark Connect, which has no Spark context."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")
