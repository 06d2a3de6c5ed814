"""A session is set up well, knows queues, and is quiet."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import localqueue.spark
from localqueue.errors import ConfigurationError
from localqueue.spark.sessions.redaction import PATTERN
from localqueue.spark.sessions.session_settings import set_up
from tests.spark.clusters import run_program

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import SparkSession


def test_a_session_knows_queues_and_is_set_up(spark: SparkSession) -> None:
    context = spark.sparkContext

    # The one of the tests, or that of a page which ran before them.
    assert (context.master or "").endswith(",4]")
    assert context.uiWebUrl is None
    assert PATTERN in (spark.conf.get("spark.sql.redaction.string.regex") or "")
    with pytest.raises(Exception, match="needs the option url"):
        spark.read.format("localqueue").load()


def test_python_workers_run_the_drivers_python(spark: SparkSession) -> None:
    def executable(batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        import sys

        import pyarrow

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"python": [sys.executable]})

    rows = spark.range(1).mapInArrow(executable, "python string").collect()

    assert {row.python for row in rows} == {sys.executable}


def test_a_session_that_is_there_is_taken_as_it_is(spark: SparkSession) -> None:
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "7")

    again = localqueue.spark.session(config={"spark.sql.adaptive.enabled": True})

    assert again is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
    spark.conf.set("spark.sql.shuffle.partitions", partitions or "2")


def test_a_session_of_yours_learns_queues_by_being_registered_once_or_twice(
    spark: SparkSession,
) -> None:
    own = spark.newSession()
    with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
        own.read.format("localqueue").load()
    spark.createDataFrame([], "n int")  # which makes this one active

    localqueue.spark.register(own)
    localqueue.spark.register(own)

    with pytest.raises(Exception, match="needs the option url"):
        own.read.format("localqueue").load()
    assert PATTERN in (own.conf.get("spark.sql.redaction.string.regex") or "")


@pytest.mark.parametrize(
    ("wanted", "master"),
    [
        ({"spark.master": "local"}, "local[1,4]"),
        ({"spark.master": "local[3]"}, "local[3,4]"),
        ({"spark.master": "local[*]"}, "local[*,4]"),
        ({"spark.master": "local[3,1]"}, "local[3,1]"),
        ({"spark.master": "local-cluster[2,1,1024]"}, "local-cluster[2,1,1024]"),
        ({"spark.master": "spark://host:7077"}, "spark://host:7077"),
    ],
)
def test_a_task_of_a_local_master_is_tried_again(wanted: dict[str, str], master: str) -> None:
    assert set_up(wanted)["spark.master"] == master


def test_what_is_not_said_is_set_up_and_what_is_said_is_kept() -> None:
    plain = set_up({})
    said = set_up({"spark.ui.enabled": "true", "spark.driver.extraJavaOptions": "-Xss4m"})

    assert plain["spark.master"].endswith(",4]")
    assert plain["spark.ui.enabled"] == "false"
    assert said["spark.ui.enabled"] == "true"
    assert said["spark.driver.extraJavaOptions"].endswith(" -Xss4m")
    assert "log4j2.properties" in said["spark.driver.extraJavaOptions"]


def test_who_wants_another_log_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    by_level = set_up({"spark.log.level": "INFO"})
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")

    assert "log4j2" not in by_level["spark.driver.extraJavaOptions"]
    assert "log4j2" not in set_up({})["spark.driver.extraJavaOptions"]


def test_only_a_local_session_stays_on_loopback() -> None:
    assert set_up({"spark.master": "local[2]"})["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in set_up({"spark.master": "spark://host:7077"})


def test_a_setting_that_is_not_sparks_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'shuffle_partitions' is not a setting of Spark"):
        localqueue.spark.session(shuffle_partitions=4)


def test_importing_localqueue_spark_loads_neither_pyspark_nor_pyarrow() -> None:
    code = "import sys, localqueue.spark; print(*sys.modules)"

    loaded = set(run_program(code).stdout.split())

    assert "localqueue.spark" in loaded
    assert not loaded & {"pyspark", "pyarrow", "pandas", "py4j", "adbc_driver_sqlite"}


@pytest.mark.parametrize("name", localqueue.spark.__all__)
def test_a_missing_library_is_an_error_that_names_the_extra(name: str) -> None:
    code = f"""
import sys
sys.modules["pyspark"] = sys.modules["pyarrow"] = None
import localqueue, localqueue.spark
try:
    localqueue.spark.{name}
except localqueue.ConfigurationError as error:
    print(error)
"""
    assert 'pip install "./localqueue[spark]"' in run_program(code).stdout


def test_every_public_name_can_be_imported_and_no_other() -> None:
    assert [name for name in localqueue.spark.__all__ if not hasattr(localqueue.spark, name)] == []
    assert set(localqueue.spark.__all__) <= set(dir(localqueue.spark))
    assert not hasattr(localqueue.spark, "NoSuchThing")


def test_without_java_a_session_says_what_to_do(tmp_path: Path) -> None:
    code = "import localqueue.spark; localqueue.spark.session()"

    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={"JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "Spark needs Java 17 or newer; JAVA_HOME is" in answer.stderr
    assert "apt install" in answer.stderr
