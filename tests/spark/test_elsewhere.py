"""Queues work on a cluster and over Spark Connect, where nobody has installed ``localqueue``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.spark.clusters import connect_server, python_without_localqueue, standalone_cluster

pytestmark = pytest.mark.timeout(600)  # several JVMs, on a machine that may be busy
PROGRAM = Path(__file__).parent / "elsewhere_program.py"


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of the program's run."""

    found: dict[str, Any]
    shown: str = ""
    """An error that names a URL with a password."""
    logged: str = ""
    """Spark's event log."""


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of executors, and of the processes that plan beside the driver."""
    return str(python_without_localqueue(tmp_path_factory.mktemp("bare") / "venv"))


@pytest.fixture(scope="module")
def on_cluster(bare_python: str, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("cluster")
    with standalone_cluster(folder) as master:
        return Seen(run(master, url_in(folder), folder, PYSPARK_PYTHON=bare_python))


@pytest.fixture(scope="module")
def over_connect(bare_python: str, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("connect")
    events = folder / "events"
    events.mkdir()
    log = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    with connect_server(folder, env={"PYSPARK_PYTHON": bare_python}, config=log) as remote:
        found = run(remote, url_in(folder), folder)
        shown = no_such_store(remote, "postgresql://ada:s3cr3t@db.example/jobs")
    return Seen(found, shown, "".join(path.read_text() for path in events.glob("*/events_*")))


@pytest.fixture(params=["on_cluster", "over_connect"])
def seen(request: pytest.FixtureRequest) -> Seen:
    """Of both, each of which has run once."""
    seen: Seen = request.getfixturevalue(request.param)
    return seen


def url_in(folder: Path) -> str:
    return f"sqlite:///{folder / 'queue.sqlite3'}"


def run(master: str, url: str, folder: Path, **env: str) -> dict[str, Any]:
    answer = subprocess.run(
        [sys.executable, PROGRAM, master, url, folder],
        capture_output=True,
        text=True,
        timeout=500,
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "SPARK_SUBMIT_OPTS": os.environ.get("SPARK_SUBMIT_OPTS", ""),
            **env,
        },
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def test_a_queue_is_written_read_and_streamed_there(seen: Seen) -> None:
    assert seen.found["read"] == list(range(10, 20))
    assert seen.found["copied"] == list(range(20))


def test_executors_run_the_drivers_package(seen: Seen) -> None:
    files = seen.found["files"]

    assert files, "some task told where it has the package from"
    assert [file for file in files if ".zip/localqueue/__init__.py" not in file] == []


def test_in_lease_mode_a_queue_is_consumed_there_by_for_each_batch_into_our_sink(
    seen: Seen,
) -> None:
    assert seen.found["taken"] == list(range(20))
    assert seen.found["left"] == []


def test_spark_connect_shows_no_password(over_connect: Seen) -> None:
    shown, logged = over_connect.shown, over_connect.logged

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
