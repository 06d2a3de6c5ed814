"""``pipeline alerts`` and ``pipeline views``, as they are written in a terminal."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from localqueue import PersistentQueue
from localqueue.cli.app import run
from localqueue.spark.pipeline.checkpoint import newest_batch
from localqueue.spark.pipeline.lake import Lake
from tests.pipeline.lives import bring
from tests.spark.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Shown = pytest.CaptureFixture[str]

VIEWS = "CREATE MATERIALIZED VIEW endings AS SELECT outcome, count(*) AS n FROM messages GROUP BY 1"


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["alerts", "x.db"], "Missing option '--checkpoint'"),
        (["alerts", "x.db", "--checkpoint", "c"], "nothing is to be watched"),
        (["alerts", "x.db", "--checkpoint", "c", "--waiting", "jobs"], "'jobs' is not NAME=TIME"),
        (["alerts", "x.db", "--checkpoint", "c", "--waiting", "alerts=5s"], "name another queue"),
        (["alerts", "memory://", "--checkpoint", "c", "--running", "jobs=5s"], "a store in memory"),
        (["run", "x.db", "lake", "--views", "views.txt"], ".py or .sql, and not in views.txt"),
        (["run", "x.db", "lake", "--views", "views.sql"], "views.sql cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_said_before_spark_is_started(
    arguments: list[str], said: str, capsys: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert run(["pipeline", *arguments]) == 2

    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_views_are_brought_up_to_date_and_listed_with_the_tables(
    spark: SparkSession, lake: Lake, tmp_path: Path, capsys: Shown
) -> None:
    bring(lake, 5, failed=2)
    file, where = tmp_path / "views.sql", lake.location.uri
    file.write_text(VIEWS)

    assert run(["pipeline", "views", where, str(file), "--json"]) == 0
    [told] = json_lines(capsys.readouterr().out)
    assert told == {"view": "endings", "kind": "materialized view", "rows": 2}

    assert run(["pipeline", "views", where, str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith("up to date")

    assert run(["pipeline", "tables", where, "--json"]) == 0
    tables = {row["name"]: row["rows"] for row in json_lines(capsys.readouterr().out)}
    assert tables["endings"] == 2

    assert run(["pipeline", "sql", where, "SELECT max(n) AS n FROM endings", "--json"]) == 0
    assert json_lines(capsys.readouterr().out) == [{"n": 3}]

    assert run(["pipeline", "status", where, "--json"]) == 0
    [status] = json_lines(capsys.readouterr().out)
    assert "endings" in {table["name"] for table in status["tables"]}


def test_views_that_cannot_be_meant_are_one_line_and_code_2(
    spark: SparkSession, lake: Lake, tmp_path: Path, capsys: Shown
) -> None:
    bring(lake, 1)
    file = tmp_path / "views.sql"
    file.write_text(VIEWS.replace("outcome,", "outcom,"))

    assert run(["pipeline", "views", lake.location.uri, str(file)]) == 2

    said = capsys.readouterr().err
    assert said.startswith("localqueue: views.sql:1: endings: ")
    assert "outcom" in said
    assert said.count("\n") == 1


def test_alerts_are_put_and_told_of(
    spark: SparkSession, url: str, tmp_path: Path, capsys: Shown
) -> None:
    jobs = PersistentQueue[Any]("jobs", store=url)
    jobs.put("a")
    threading.Event().wait(1.2)  # until it is due for an alert
    command = ["pipeline", "alerts", url, "--waiting", "jobs=0.1s", "--to", "pager", "--once"]
    command += ["--checkpoint", str(tmp_path / "checkpoint")]

    assert run([*command, "--json"]) == 0
    assert json_lines(capsys.readouterr().out)[-1] == {"done": True, "alerts": 1}
    assert run(command) == 0
    assert capsys.readouterr().out == "0 alerts put into pager\n"

    assert PersistentQueue[Any]("pager", store=url).get()["queue"] == "jobs"


def test_ctrl_c_ends_alerts_with_code_130(
    spark: SparkSession, url: str, tmp_path: Path, capsys: Shown
) -> None:
    PersistentQueue[Any]("jobs", store=url).put("a")
    alerts = PersistentQueue[Any]("alerts", store=url)

    checkpoint = tmp_path / "checkpoint"

    def interrupt() -> None:
        alerts.get(timeout=120)
        # What a batch that is interrupted has put is not counted: the next run does it again.
        its_end = checkpoint / "commits" / str(newest_batch(checkpoint))
        until(its_end.exists, "the batch did not end")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    command = ["pipeline", "alerts", url, "--waiting", "jobs=0.1s", "--every", "0.1"]

    assert run([*command, "--checkpoint", str(checkpoint)]) == 130

    thread.join()
    assert capsys.readouterr().out.splitlines()[-1] == "1 alert put into alerts"
