"""The reckoning of a lake finds what it is there to find."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, write_deltalake

from localqueue import PersistentQueue
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.pipeline import Pipeline
from tests.pipeline.reckoning import reckon
from tests.pipeline.working import open_queue, work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ["events", "attempts", "messages", "errors", "minutes"]


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and a lake that has all of it."""
    folder = tmp_path_factory.mktemp("reckoned")
    url = f"sqlite:///{folder}/queue.sqlite3"
    with open_queue(url) as queue:
        work(queue, 15)
        Pipeline(url, folder / "lake", spark=spark).run()
    return folder


@pytest.fixture
def queue(folder: Path) -> Iterator[PersistentQueue[Any]]:
    with open_queue(f"sqlite:///{folder}/queue.sqlite3") as queue:
        yield queue


@pytest.fixture
def lake(folder: Path, tmp_path: Path) -> Lake:
    """A copy, to be spoilt."""
    return Lake(shutil.copytree(folder / "lake", tmp_path / "lake"))


def spoil(lake: Lake, table: str, how: str) -> None:
    """One row is missing, or there twice, or is of something else."""
    delta = DeltaTable(f"{lake.location.uri}/{table}")
    rows = delta.to_pyarrow_table()
    first, rest = rows.slice(0, 1), rows.slice(1)
    match how:
        case "missing":
            write_deltalake(delta, rest, mode="overwrite")
        case "twice":
            write_deltalake(delta, first, mode="append")
        case "another's":
            at = rows.schema.get_field_index("queue")
            other = first.set_column(at, rows.schema.field(at), [["another"]])
            write_deltalake(delta, rest, mode="overwrite")
            write_deltalake(delta, other, mode="append")


def test_a_lake_as_it_should_be_is_passed(lake: Lake, queue: PersistentQueue[Any]) -> None:
    reckon(lake, queue)


@pytest.mark.parametrize("how", ["missing", "twice", "another's"])
@pytest.mark.parametrize("table", TABLES)
def test_a_row_that_is_not_as_it_should_be_is_found(
    lake: Lake, queue: PersistentQueue[Any], table: str, how: str
) -> None:
    spoil(lake, table, how)

    with pytest.raises(AssertionError):
        reckon(lake, queue)


def test_an_event_that_has_not_come_is_found(lake: Lake, folder: Path, tmp_path: Path) -> None:
    store = shutil.copy(folder / "queue.sqlite3", tmp_path)
    with open_queue(f"sqlite:///{store}") as queue:
        queue.put(1)

        with pytest.raises(AssertionError):
            reckon(lake, queue)


def test_an_event_that_should_be_in_quarantine_is_found(
    lake: Lake, queue: PersistentQueue[Any]
) -> None:
    with pytest.raises(AssertionError):
        reckon(lake, queue, missing=[1])
