"""Where tasks leave their rows: whose folder it is, and how much may do without one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from localqueue.errors import ConfigurationError
from localqueue.spark.write.staged_rows import RIDES, RIDES_FROM_ELSEWHERE, RowsOut
from tests.spark.writing import batch_writer, numbers, put_numbers, run_tasks

SCHEMA = StructType([StructField("value", StringType())])
BODIES = pa.schema([("body", pa.large_binary())])
MB = 1024 * 1024
MANY = 12_000


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def permissions(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("rows", [5, MANY])
def test_a_folder_of_the_users_own_stays_as_it_is(url: str, tmp_path: Path, rows: int) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o775)

    writer = batch_writer(url, SCHEMA, queue="jobs", stagingDirectory=str(folder))
    writer.commit([*run_tasks(writer, SCHEMA, numbers(0, rows))])
    writer.abort([])

    assert put_numbers(url) == list(range(rows))
    assert permissions(folder) == 0o775
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("umask")
def test_a_folder_of_the_users_own_is_made_for_all_of_a_group(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "shared"

    writer = batch_writer(url, SCHEMA, queue="jobs", stagingDirectory=str(folder))
    run_tasks(writer, SCHEMA, numbers(0, MANY))

    [file] = folder.iterdir()
    assert (permissions(folder), permissions(file)) == (0o750, 0o640)


def rows_of(size: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array([b"x" * size], pa.large_binary())], schema=BODIES)


@pytest.mark.parametrize("tasks", [1, 8, 200])
def test_equal_tasks_elsewhere_send_no_more_than_the_whole_together(tasks: int) -> None:
    share = max(RIDES, RIDES_FROM_ELSEWHERE // tasks)
    for size, is_too_much in ((share // 2, False), (share + MB, True)):
        with RowsOut(BODIES, None, "a", partition=tasks - 1) as out:
            if is_too_much:
                with pytest.raises(ConfigurationError, match="give stagingDirectory"):
                    out.add(rows_of(size))
            else:
                out.add(rows_of(size))


def test_a_task_elsewhere_says_how_much_it_may_send() -> None:
    with (
        RowsOut(BODIES, None, "a", partition=127) as out,
        pytest.raises(ConfigurationError, match=r"more than 0\.5 MB of rows, its share of the 64"),
    ):
        out.add(rows_of(MB))
