"""One Spark session for all tests of a process: it takes seconds to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import localqueue.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


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
    _keep_to_themselves()
    yield session
    session.stop()


def _keep_to_themselves() -> None:
    """Loggers of Spark that do not propagate are given pytest's handlers, and write JSON into
    those for good; other tests of the process would find that."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logger = PySparkLogger.getLogger(name)
        logger.propagate = logger.disabled = True


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    """Where a test keeps its store."""
    return tmp_path / "queue.sqlite3"


@pytest.fixture
def url(store_path: Path) -> str:
    """The same as the URL that the options of Spark take."""
    return f"sqlite:///{store_path}"
