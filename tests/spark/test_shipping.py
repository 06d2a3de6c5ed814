"""Executors run the driver's package, whether or not one is installed where they are."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from localqueue.spark.sessions import shipping
from tests.spark.clusters import python_without_localqueue

CODE = """
import sys
import localqueue
from localqueue.spark.sessions.shipping import package_zip
assert ".zip" in localqueue.__file__, localqueue.__file__
with localqueue.PersistentQueue("jobs", store=sys.argv[1]) as queue:
    queue.put({"order": 17})
    print(queue.get_message().value["order"], package_zip().name)
"""


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    return python_without_localqueue(tmp_path / "venv")


def test_everything_that_the_package_reads_is_in_the_zip() -> None:
    with zipfile.ZipFile(shipping.package_zip()) as archive:
        names = set(archive.namelist())

    assert {
        "localqueue/__init__.py",
        "localqueue/py.typed",
        "localqueue/stores/sqlite/schema.sql",
        "localqueue/stores/sqlite/migrations/0002.sql",
        "localqueue/spark/sessions/log4j2.properties",
    } <= names
    assert not [name for name in names if "__pycache__" in name]
    assert {name.partition("/")[0] for name in names} == {"localqueue"}


def test_the_zip_is_named_after_its_contents() -> None:
    first = shipping.package_zip()
    shipping.package_zip.cache_clear()

    second = shipping.package_zip()

    assert first != second
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_a_queue_works_out_of_the_zip_and_the_zip_can_be_shipped_on(
    bare_python: Path, tmp_path: Path, url: str
) -> None:
    path = shipping.package_zip()

    answer = subprocess.run(
        [bare_python, "-W", "error", "-c", CODE, url],
        env={"PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (answer.stdout.strip(), answer.stderr) == (f"17 {path.name}", "")


def test_the_python_of_these_tests_has_no_localqueue_of_its_own(bare_python: Path) -> None:
    answer = subprocess.run(
        [bare_python, "-c", "import pyspark, pyarrow, localqueue"],
        env={},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "No module named 'localqueue'" in answer.stderr
