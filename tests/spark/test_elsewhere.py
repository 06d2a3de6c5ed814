"""Queues work on a cluster and over Spark Connect, where nobody has installed ``localqueue``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.clusters import connect_server, python_without_localqueue, standalone_cluster

pytestmark = pytest.mark.timeout(600)  # several JVMs, on a machine that may be busy
PROGRAM = Path(__file__).parent / "elsewhere_program.py"


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """The Python of executors, and of the processes that plan beside the driver."""
    return str(python_without_localqueue(tmp_path / "venv"))


def run(master: str, url: str, folder: Path, **env: str) -> dict[str, Any]:
    answer = subprocess.run(
        [sys.executable, PROGRAM, master, url, folder],
        capture_output=True,
        text=True,
        timeout=500,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", **env},
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def check(found: dict[str, Any]) -> None:
    assert found["read"] == list(range(10, 20))
    assert found["copied"] == list(range(20))
    assert found["files"], "some task told where it has the package from"
    assert [file for file in found["files"] if ".zip/localqueue/__init__.py" not in file] == []


def test_the_executors_of_a_cluster_run_the_drivers_package(
    bare_python: str, url: str, tmp_path: Path
) -> None:
    with standalone_cluster(tmp_path) as master:
        found = run(master, url, tmp_path, PYSPARK_PYTHON=bare_python)

    check(found)


def test_a_session_of_spark_connect_reads_writes_and_streams_and_shows_no_password(
    bare_python: str, url: str, tmp_path: Path
) -> None:
    events = tmp_path / "events"
    events.mkdir()
    log = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    with connect_server(tmp_path, env={"PYSPARK_PYTHON": bare_python}, config=log) as remote:
        found = run(remote, url, tmp_path)
        shown = no_such_store(remote, "postgresql://ada:s3cr3t@db.example/jobs")

    check(found)
    logged = "".join(path.read_text() for path in events.glob("*/events_*"))
    assert "SparkListenerConnectOperationStarted" in logged
    assert "postgresql://ada:" in logged, "Connect logs what was asked for"
    assert "postgresql://ada:***@db.example/jobs" in shown
    assert "s3cr3t" not in logged + shown


def no_such_store(remote: str, url: str) -> str:
    """What a query of a store that does not exist shows."""
    code = """
import sys, localqueue.spark
spark = localqueue.spark.session(sys.argv[1])
try:
    spark.read.format("localqueue").option("url", sys.argv[2]).load().collect()
except Exception as error:
    print(error)
spark.stop()
"""
    answer = subprocess.run(
        [sys.executable, "-c", code, remote, url],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    return answer.stdout + answer.stderr
