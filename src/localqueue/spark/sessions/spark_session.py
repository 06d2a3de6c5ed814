"""``session()``: a Spark session, set up for queues."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from localqueue.errors import ConfigurationError
from localqueue.spark.sessions.java import use_java
from localqueue.spark.sessions.registration import register
from localqueue.spark.sessions.session_settings import set_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(
    master: str | None = None,
    *,
    config: Mapping[str, object] | None = None,
    **settings: object,
) -> SparkSession:
    """A Spark session that knows ``format("localqueue")``; the one that is there, if there is one.

    ``master`` is Spark's: ``local[4]``, ``spark://host:7077``, or ``sc://host:15002`` for Spark
    Connect. Without it, it is the one that ``spark-submit`` or ``SPARK_REMOTE`` names, else all
    cores of this machine. A local master tries a task four times, as a cluster does.

    Settings of Spark are a mapping ``config`` or keywords, ``session(**{"spark.driver.memory":
    "2g"})``; they are stronger than what is set up here. A session that is there already, and one
    that ``spark-submit`` has set up, get no others.

    ConfigurationError when Java is missing, with what to do about it.
    """
    wanted = {name: _text(value) for name, value in {**(config or {}), **settings}.items()}
    for name in wanted:
        if not name.startswith("spark."):
            raise ConfigurationError(f"{name!r} is not a setting of Spark; they start with spark.")
    remote = _remote(master, wanted)
    spark = _classic(master, wanted) if remote is None else _connect(remote, wanted)
    register(spark)
    return spark


def _remote(master: str | None, wanted: Mapping[str, str]) -> str | None:
    if master is not None:
        return master if master.startswith("sc://") else None
    if "spark.master" in wanted:
        return None
    return wanted.get("spark.remote") or os.environ.get("SPARK_REMOTE")


def _connect(remote: str, wanted: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(remote)
    for name, value in wanted.items():
        if name != "spark.remote":
            builder = builder.config(name, value)
    return builder.getOrCreate()


def _classic(master: str | None, wanted: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    settings = dict(wanted)
    if master is not None:
        settings["spark.master"] = master
    is_there = SparkContext._active_spark_context is not None
    if not is_there:
        # Python workers run what the driver runs, unless somebody has said otherwise: python3 on
        # the PATH is often another one, without PyArrow.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not is_there and "PYSPARK_GATEWAY_PORT" not in os.environ:  # not below spark-submit
        use_java()
        settings = set_up(settings)
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
