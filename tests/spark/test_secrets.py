"""A password in a store's URL is in no log, event log, plan, progress or exception of Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from localqueue.spark.sessions.redaction import PATTERN, redact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = Path(__file__).parent / "secrets_program.py"
PASSWORD = "s3cr3t%21"


@pytest.mark.timeout(600)
def test_a_password_is_shown_nowhere(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, PROGRAM, f"postgresql://ada:{PASSWORD}@db.example/jobs", tmp_path],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert answer.returncode == 0, answer.stderr
    events = "".join(
        path.read_text() for path in tmp_path.glob("events/**/*") if path.name.startswith("events_")
    )
    for step in ("partitions", "read", "streamed read", "write", "commit"):
        assert f"{step} failed at postgresql://ada:***@db.example/jobs" in answer.stdout
    assert "INFO DAGScheduler" in answer.stderr, "Spark logs what it does"
    assert "SparkListenerSQLExecutionStart" in events
    assert "QueryProgressEvent" in events
    for shown in (answer.stdout, answer.stderr, events):
        assert "db.example" in shown, "the URL itself is shown"
        lines = [line for line in shown.splitlines() if "s3cr3t" in line]
        assert lines == []


def test_what_spark_shows_is_redacted_beside_what_it_was_told_to_redact(
    spark: SparkSession,
) -> None:
    setting = "spark.sql.redaction.string.regex"
    own = spark.newSession()
    own.conf.set(setting, "tulip")

    redact(own)
    redact(own)

    assert own.conf.get(setting) == f"(?:tulip)|{PATTERN}"
    plan = explained(
        own, "a tulip x://u:s3cr3t@h http://h/?token=s3cr3t&a=1 host=h password=s3cr3t"
    )
    assert "s3cr3t" not in plan
    assert "tulip" not in plan
    assert "&a=1" in plan


def explained(spark: SparkSession, text: str) -> str:
    rows = spark.sql(f"EXPLAIN EXTENDED SELECT '{text}' AS shown").collect()
    return "\n".join(row[0] for row in rows)
