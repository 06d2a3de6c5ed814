"""One Spark session for all tests of a process: it takes seconds to start."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.logger import PySparkLogger

import localqueue.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]

# Spark's loggers do not propagate, so pytest gives them its handlers, and they would make these
# write JSON for good: also what is logged by other tests of the process.
PySparkLogger.addHandler = logging.Logger.addHandler  # type: ignore[assignment, method-assign]
for _name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    PySparkLogger.getLogger(_name).disabled = True


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session of two cores whose tasks are tried four times."""
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        # What tests send to Python workers is imported there, whatever folder the first of them
        # was in when Java was started.
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        session = localqueue.spark.session(
            "local[2,4]",
            config={
                "spark.driver.memory": "1g",
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.local.dir": str(folder / "local"),
            },
        )
    yield session
    session.stop()


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """Where a test keeps its store."""
    return tmp_path / "queue.sqlite3"


@pytest.fixture
def url(store_path: Path) -> str:
    """The same as the URL that the options of Spark take."""
    return f"sqlite:///{store_path}"
