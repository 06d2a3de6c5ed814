"""How a parcel of messages becomes a Spark job: by an RDD, or by Arrow over Spark Connect."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from localqueue.errors import ConfigurationError
from localqueue.spark.sessions.registration import is_connect
from localqueue.spark.workers.handler_task import PARCEL, HandlerTask
from localqueue.spark.workers.news import NewsDesk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POOL = "localqueue"
"""The scheduler pool of the jobs; with ``spark.scheduler.mode=FAIR`` others have their share."""
_THRESHOLD = "spark.speculation.task.duration.threshold"
"""Only with it Spark looks at stages of one task."""
_CANCELLED = ("SPARK_JOB_CANCELLED", "OPERATION_CANCELED", "OPERATION_ABANDONED")


class Jobs(Protocol):
    """Runs parcels on executors, several at a time, each by the thread that calls ``run``."""

    cores: int
    """How many tasks the executors run at a time, as far as one knows."""

    def in_thread(self, target: Callable[[], None]) -> Callable[[], None]:
        """The target of a thread that will call ``run``."""

    def set_up(self, description: str) -> None:
        """Once in each of these threads."""

    def run(self, task: HandlerTask, parcel: bytes) -> bytes:
        """What the task answers. As one task, which nobody else of this worker waits for."""

    def cancel(self) -> None:
        """End all jobs that run. From any thread; does not raise."""

    def desk(self) -> NewsDesk | None:
        """Where tasks can tell what they have done; None where nobody can listen."""


class RddJobs:
    """In the process of a classic session."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._tag = f"localqueue-{uuid4().hex}"
        self._spark = spark
        self.cores = self._context.defaultParallelism

    def in_thread(self, target: Callable[[], None]) -> Callable[[], None]:
        return _in_thread(self._spark, target)

    def set_up(self, description: str) -> None:
        context = self._context
        context.setLocalProperty("spark.scheduler.pool", POOL)
        context.addJobTag(self._tag)
        # A handler that sleeps is ended too.
        context.setInterruptOnCancel(True)
        context.setJobDescription(description)

    def run(self, task: HandlerTask, parcel: bytes) -> bytes:
        rows = self._context.parallelize([parcel], 1)
        [answer] = rows.mapPartitions(task.over_rows).collect()
        return answer

    def cancel(self) -> None:
        # Where the context has been stopped there is nothing left to cancel.
        with contextlib.suppress(Exception):
            self._context.cancelJobsWithTag(self._tag)

    def desk(self) -> NewsDesk | None:
        settings = self._context.getConf()
        if (self._context.master or "").startswith("local["):
            return _desk("127.0.0.1")
        host = settings.get("spark.driver.host")
        return None if host is None else _desk(host, settings.get("spark.driver.bindAddress"))


class ConnectJobs:
    """Over Spark Connect, where there are no RDDs."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tag = f"localqueue-{uuid4().hex}"
        self.cores = _parallelism(spark)

    def in_thread(self, target: Callable[[], None]) -> Callable[[], None]:
        return _in_thread(self._spark, target)

    def set_up(self, description: str) -> None:
        self._spark.addTag(self._tag)

    def run(self, task: HandlerTask, parcel: bytes) -> bytes:
        import pyarrow as pa

        table = pa.table({PARCEL: pa.array([parcel], pa.binary())})
        rows = self._spark.createDataFrame(table).mapInArrow(task.over_arrow, f"{PARCEL} binary")
        [answer] = rows.collect()
        return bytes(answer[0])

    def cancel(self) -> None:
        with contextlib.suppress(Exception):
            self._spark.interruptTag(self._tag)

    def desk(self) -> NewsDesk | None:
        """At the address of this machine from which the server is reached."""
        client: Any = self._spark.client
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
                line.connect((client.host, 9))
                return _desk(line.getsockname()[0])
        except (OSError, AttributeError):
            return None


def jobs_of(spark: SparkSession) -> Jobs:
    """ConfigurationError where Spark would start a second copy of a handler that takes long."""
    if _setting(spark, "spark.speculation") == "true" and _setting(spark, _THRESHOLD):
        raise ConfigurationError(
            f"spark.speculation with {_THRESHOLD} starts handlers twice; unset one of them"
        )
    return ConnectJobs(spark) if is_connect(spark) else RddJobs(spark)


def is_cancelled(error: BaseException) -> bool:
    """Whether somebody has ended the job, and not its task."""
    text = str(error)
    return any(condition in text for condition in _CANCELLED)


def _in_thread(spark: SparkSession, target: Callable[[], None]) -> Callable[[], None]:
    from pyspark.util import inheritable_thread_target

    # It lets go of the thread's connection to the JVM in the end.
    wrapped: Callable[[], None] = inheritable_thread_target(spark)(target)
    return wrapped


def _desk(host: str, bind: str | None = None) -> NewsDesk | None:
    try:
        return NewsDesk(host, bind)
    except OSError:
        return None


def _parallelism(spark: SparkSession) -> int:
    """Of the server: as many partitions as it makes of a range."""
    from pyspark.sql.functions import spark_partition_id

    return spark.range(1024).select(spark_partition_id()).distinct().count()


def _setting(spark: SparkSession, name: str) -> str:
    return spark.conf.get(name, "") or ""
