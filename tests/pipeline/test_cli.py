"""The command line: what it prints, what it answers with, and that an error is one line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from localqueue import PersistentQueue
from localqueue.cli.app import run
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.minutes import MINUTES
from localqueue.spark.pipeline.report.status import status_of
from tests.pipeline.lakes import busy_days, fill, minute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = (
    "run", "report", "tables", "sql", "status", "views", "declarative", "replay", "groups",
    "alerts", "compact", "vacuum",
)  # fmt: skip

Shown = pytest.CaptureFixture[str]


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def where(lake: Lake) -> str:
    return lake.location.uri


@pytest.fixture
def queue(url: str) -> PersistentQueue[Any]:
    queue = PersistentQueue[Any]("jobs", store=url)
    queue.put_many(range(10))
    for message in queue.get_messages(8, leased_by="w1"):
        queue.ack(message)
    return queue


# --- help and errors ------------------------------------------------------------------------------
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: Shown) -> None:
    assert run(["pipeline", command, "--help"]) == 0

    text = capsys.readouterr().out
    assert f"Usage: localqueue pipeline {command}" in text
    assert all(
        line.strip().endswith(("]", ".")) for line in text.split("\n\n")[1].splitlines()[-1:]
    )


def test_the_group_lists_its_commands(capsys: Shown) -> None:
    assert run(["pipeline"]) == 2

    shown = capsys.readouterr()
    listed = re.findall(r"^  (\w+)  ", shown.out + shown.err, re.MULTILINE)
    assert set(COMMANDS) <= set(listed)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pipelin"], "No such command 'pipelin'"),
        (["pipeline", "run", "x.db"], "Missing argument 'LAKE'"),
        (["pipeline", "tables", "lake", "--colour"], "No such option"),
        (["pipeline", "run", "--slo", "jobs", "x.db", "lake"], "'jobs' is not NAME=TIME"),
        (["pipeline", "run", "--retention", "events=soon", "x.db", "lake"], "no length of time"),
        (["pipeline", "run", "--retention", "evnts=3d", "x.db", "lake"], "is called 'evnts'"),
        (["pipeline", "run", "--retention", "gaps=3d", "x.db", "lake"], "errors have"),
        (["pipeline", "run", "--retention", "events=3", "x.db", "lake"], "has no unit"),
        (["pipeline", "run", "x.db", "sqlite:///lake"], "is a store, and a lake is wanted here"),
        (["pipeline", "report", "lake", "--since", "1h", "--until", "2h"], "is not after"),
        (["pipeline", "alerts", "x.db", "--checkpoint", "c"], "--waiting orders=30s"),
        (["pipeline", "run", "--name", "a/b", "x.db", "lake"], "cannot name a pipeline"),
        (["pipeline", "run", "memory://", "lake"], "a store in memory"),
        (["pipeline", "report", "lake", "--since", "noon"], "'noon' is no time"),
        (["pipeline", "report", "lake", "--slo-target", "99"], "between 0 and 1"),
        (["pipeline", "report", "lake", "--since", "2999-01-01"], "2999-01-01 is still to come"),
        (["pipeline", "report", "lake", "-o", "nowhere/r.html"], "no folder nowhere"),
        (["pipeline", "report", "lake", "-o", "/"], "/ is a folder; name a file"),
        (["pipeline", "sql", "lake", "SELECT 1", "--csv", "--json"], "cannot both be meant"),
        (["pipeline", "compact", "lake", "evnts"], "no table of a pipeline is called 'evnts'"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_code_2(
    arguments: list[str], said: str, capsys: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert run(arguments) == 2

    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert shown.err.startswith("localqueue: ")
    assert shown.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["pipeline", "run", "missing.db", "lake"],
        ["pipeline", "status", "lake", "missing.db"],
        ["pipeline", "status", "missing"],
        ["pipeline", "tables", "missing"],
        ["pipeline", "tables", "a file"],
        ["pipeline", "run", "x.db", "a file"],
        ["pipeline", "report", "missing"],
        ["pipeline", "sql", "lake", "SELECT 1"],
        ["pipeline", "tables", "lake", "events"],
        ["pipeline", "vacuum", "lake"],
    ],
)
def test_an_error_of_the_library_is_one_line_and_code_1(
    arguments: list[str], capsys: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a file").touch()

    assert run(arguments) == 1

    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert "Traceback" not in shown.err
    assert [file.name for file in tmp_path.iterdir()] == ["a file"]


def test_a_traceback_is_for_who_asks_for_it(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no tables"):
        run(["--debug", "pipeline", "sql", str(tmp_path / "lake"), "SELECT 1"])


def test_a_password_is_never_shown(capsys: Shown, tmp_path: Path) -> None:
    code = run(["pipeline", "run", "postgresql://me:hunter2@host/db", str(tmp_path / "lake")])

    shown = capsys.readouterr()
    assert code in (1, 2)
    assert "hunter2" not in shown.out + shown.err
    assert "me:***@host" in shown.err


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    missing = "import sys; sys.modules['typer'] = None\nfrom localqueue.cli import main\nmain()"

    done = subprocess.run(
        [sys.executable, "-c", missing], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert done.stderr == (
        'localqueue: the command line needs typer; write pip install "./localqueue[cli]"\n'
    )


def test_without_the_spark_extra_it_says_so_too(tmp_path: Path) -> None:
    missing = (
        "import sys; sys.modules['deltalake'] = None\n"
        "from localqueue.cli.app import run\n"
        "sys.exit(run(['pipeline', 'tables', 'lake']))"
    )

    done = subprocess.run(
        [sys.executable, "-c", missing], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert 'pip install "./localqueue[spark]"' in done.stderr


def test_the_command_is_installed_under_its_name() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]

    assert scripts == {"localqueue": "localqueue.cli:main"}


# --- looking at a lake ----------------------------------------------------------------------------
def test_report_writes_the_page_and_shows_a_summary(
    lake: Lake, where: str, tmp_path: Path, capsys: Shown
) -> None:
    busy_days(lake, hours=2)
    page = tmp_path / "out.html"

    assert run(["pipeline", "report", where, "-o", str(page)]) == 0

    text = capsys.readouterr().out
    assert page.read_text().startswith("<!doctype html>")
    assert "orders" in text
    assert "all queues" in text
    assert f"written to {page}" in text


def test_report_in_json_has_the_numbers(
    lake: Lake, where: str, tmp_path: Path, capsys: Shown
) -> None:
    fill(lake, MINUTES, [minute(0, waits=[1.0, 3.0], backlog=4)])

    assert run(["pipeline", "report", where, "-o", str(tmp_path / "r.html"), "--json"]) == 0

    (found,) = json_lines(capsys.readouterr().out)
    assert found["overall"]["acked"] == 2
    assert found["queues"][0]["wait_p95"] == 3.0
    assert found["queues"][0]["backlog"] == 4


def test_tables_lists_tables_or_the_columns_of_one(lake: Lake, where: str, capsys: Shown) -> None:
    fill(lake, MINUTES, [minute(0, waits=[1])])

    assert run(["pipeline", "tables", where]) == 0
    assert re.search(r"^minutes +1 ", capsys.readouterr().out, re.MULTILINE)
    assert run(["pipeline", "tables", where, "--json"]) == 0
    (table,) = json_lines(capsys.readouterr().out)
    assert (table["name"], table["rows"], table["version"]) == ("minutes", 1, 1)
    assert run(["pipeline", "tables", where, "minutes"]) == 0
    assert "wait_p95" in capsys.readouterr().out


def test_compact_joins_files_and_vacuum_deletes_only_what_is_old(
    lake: Lake, where: str, capsys: Shown
) -> None:
    for n in range(3):
        fill(lake, MINUTES, [minute(n, waits=[1])])

    assert run(["pipeline", "compact", where]) == 0
    assert "minutes: 2 files less, 1 left" in capsys.readouterr().out
    assert run(["pipeline", "vacuum", where, "minutes", "--json"]) == 0
    assert json_lines(capsys.readouterr().out) == [{"table": "minutes", "files_deleted": 0}]


# --- with Spark -----------------------------------------------------------------------------------
def test_run_brings_a_store_to_a_lake_and_sql_and_status_tell_of_it(
    spark: SparkSession, queue: PersistentQueue[Any], url: str, where: str, capsys: Shown
) -> None:
    path = url.removeprefix("sqlite:///")
    assert run(["pipeline", "run", path, where, "--json"]) == 0
    *batches, done = json_lines(capsys.readouterr().out)
    assert done["done"]
    assert done["events"] == sum(batch["events"] for batch in batches) > 20
    assert done["added"]["messages"] == 8

    ask = ["pipeline", "sql", where]
    assert run([*ask, "SELECT outcome, count(*) AS n FROM messages GROUP BY 1", "--json"]) == 0
    assert json_lines(capsys.readouterr().out) == [{"outcome": "acked", "n": 8}]
    assert run([*ask, "SELECT queue, acked, failure_rate FROM hours", "--csv"]) == 0
    assert capsys.readouterr().out == "queue,acked,failure_rate\njobs,8,0.0\n"
    assert run([*ask, "SELECT seq FROM events", "--limit", "2"]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 3
    assert "the first 2 rows" in shown.err
    assert run([*ask, "SELECT 1 FROM mesages"]) == 2
    assert "The lake has attempts, days, errors, events, hours, messages" in capsys.readouterr().err
    assert run([*ask, "SELEC 1"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    for change in ("INSERT OVERWRITE events SELECT * FROM events", "DROP TABLE events"):
        assert run([*ask, change]) == 2
        assert "tables are only asked" in capsys.readouterr().err
    assert run([*ask, "SHOW TABLES"]) == 0
    assert "events" in capsys.readouterr().out

    queue.put("one more")
    assert run(["pipeline", "status", where, url, "--json"]) == 0
    (status,) = json_lines(capsys.readouterr().out)
    (feed,) = status["store"]["feeds"]
    assert feed["lag"] == 1
    assert feed["position"] == status["store"]["journal_end"] - 1
    assert [group["name"] for group in status["store"]["groups"]] == ["pipeline:default"]
    assert {"events", "attempts", "messages", "minutes"} <= {t["name"] for t in status["tables"]}
    assert run(["pipeline", "status", where, url]) == 0
    assert re.search(r"^all +\d+ +\d+ +1$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_a_run_that_is_interrupted_ends_after_its_batch_with_code_130(
    queue: PersistentQueue[Any], url: str, lake: Lake, where: str, number: signal.Signals
) -> None:
    queue.put_many(range(300))
    queue.close()
    command = [sys.executable, "-m", "localqueue.cli", "pipeline", "run", url, where, "--json"]
    command += ["--rows-per-batch", "5", "--master", "local[2,4]"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())

    # As a terminal or a supervisor does it: to Java too.
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=120)

    assert process.returncode == 130, err
    assert err == "localqueue: ending after this batch; Ctrl-C again ends at once\n"
    *batches, done = json_lines(out)
    assert done["batches"] == 1 + len(batches) < 20
    rows = {table.name: table.rows for table in status_of(lake).tables}
    assert rows["events"] == first["events"] + sum(batch["events"] for batch in batches)
    # No table is in the middle of a batch.
    assert rows["messages"] == sum(b["added"]["messages"] for b in [first, *batches])
