"""Spark's own Declarative Pipelines, run where queues are sources.

``spark-pipelines run`` is the same, but ends with an error after a run that has succeeded: with a
source in Python the server's last answer is about profiles, and PySpark 4 does not know what to do
with it. Spark writes the tables of such a pipeline to its own warehouse; for tables of a lake see
``views``.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException, PySparkValueError

from localqueue.errors import ConfigurationError
from localqueue.spark.pipeline.failures import failure_of
from localqueue.spark.sessions.java import use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OnEvent = Callable[[datetime, str], object]

_PROFILES = "__python_accumulator__"
_LASTING = {
    # Otherwise Spark forgets its tables with the process, and then finds that they are there.
    "spark.sql.catalogImplementation": "hive",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def run_declarative(
    spec: str | Path,
    *,
    master: str = "local[*]",
    config: Mapping[str, str] | None = None,
    refresh: Sequence[str] = (),
    full_refresh: Sequence[str] = (),
    full_refresh_all: bool = False,
    dry_run: bool = False,
    on_event: OnEvent | None = None,
) -> None:
    """Run the pipeline that a spec describes, as ``spark-pipelines run`` does.

    ``format("localqueue")`` is known to its definitions. ``master`` is one of Spark's, or
    ``sc://host:15002`` of a Spark Connect server. ``config`` are settings of Spark that a spec
    cannot have, such as ``spark.sql.warehouse.dir``. Unless they say otherwise, Spark started here
    keeps its tables in ``spark-warehouse`` and what it knows of them in ``metastore_db``, both in
    the folder of the process. ``on_event`` is told what Spark tells of the run.

    ConfigurationError for a spec or a definition that cannot be meant. No other Spark session may
    be there in the process.
    """
    from pyspark.pipelines.cli import load_pipeline_spec, register_definitions
    from pyspark.pipelines.spark_connect_graph_element_registry import (
        SparkConnectGraphElementRegistry,
    )
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run

    path = Path(spec)
    try:
        described = load_pipeline_spec(path)
    except (OSError, ValueError, TypeError, KeyError, PySparkException) as error:
        raise ConfigurationError(f"{path} cannot be used as a spec: {error}") from error
    spark = _connected(master, {**_LASTING, **described.configuration, **(config or {})})
    try:
        graph = create_dataflow_graph(
            spark, described.catalog, described.database, dict(described.configuration)
        )
        # It prints what it does, and answers are for whoever is told of events.
        with redirect_stdout(sys.stderr):
            registry = SparkConnectGraphElementRegistry(spark, graph)
            register_definitions(path, registry, described, spark, graph)
        run = start_run(
            spark, graph, full_refresh, full_refresh_all, refresh, dry_run, described.storage
        )
        for answer in run:
            _tell(answer, on_event)
    except PySparkValueError as error:
        if error.getCondition() != "UNKNOWN_RESPONSE" or _PROFILES not in str(error):
            raise failure_of(error) from error
    except PySparkException as error:
        raise failure_of(error) from error
    finally:
        spark.stop()


def _connected(master: str, configuration: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    from localqueue.spark.sessions.registration import register

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not master.startswith("sc://"):
        use_java()
    builder = SparkSession.builder.remote(master)
    for name, value in configuration.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        # What is set for the server is tried on the session as well, which cannot have it.
        warnings.filterwarnings("ignore", message="Failed to set spark")
        spark = builder.getOrCreate()
    # Definitions may not set anything, so that nobody but the one who runs them can do this.
    register(spark)
    return spark


def _tell(answer: dict[str, Any], on_event: OnEvent | None) -> None:
    result = answer.get("pipeline_event_result")
    if result is not None and on_event is not None:
        at = result.event.timestamp.ToDatetime().replace(tzinfo=UTC)
        on_event(at, result.event.message)
