"""A lake in an object store: an S3 server run as a process, steady or not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from localqueue import PersistentQueue
from localqueue.cli.app import run
from localqueue.errors import LocalQueueError
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.parquet_files import write_table
from localqueue.spark.pipeline.pipeline import Pipeline
from localqueue.spark.pipeline.places import Feed
from localqueue.spark.pipeline.read_table import read_table
from tests.pipeline.reckoning import reckon
from tests.pipeline.s3_server import s3_server, storage_options
from tests.pipeline.test_lake import HERE, START, THINGS
from tests.pipeline.unsteady import unsteady
from tests.pipeline.working import open_queue, work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("moto", reason="the S3 server of the tests")


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with s3_server() as port:
        yield port


def test_a_pipeline_brings_every_event_once_to_an_object_store(
    spark: SparkSession, url: str, port: int
) -> None:
    lake = Lake("s3://lake/of/queues", storage_options(f"http://127.0.0.1:{port}"))
    queue: PersistentQueue[Any] = PersistentQueue("jobs", store=url)
    for _ in range(2):
        queue.put_many([{"n": n} for n in range(5)])
        queue.ack_many(queue.get_messages(5))
        # Each with a checkpoint of its own that is gone afterwards: the lake knows where it ends.
        Pipeline(url, lake, spark=spark).run()

    messages = lake.table("messages")
    assert messages is not None
    assert read_table(spark, messages, predicate="outcome = 'acked'").count() == 10
    reckon(lake, queue)


@pytest.fixture
def credentials(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the environment, as users have them, and no others."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in storage_options(f"http://127.0.0.1:{port}").items():
        monkeypatch.setenv(name, value)


def told_by_a_process(*arguments: str) -> list[dict[str, Any]]:
    """By a command with a Spark of its own: the tests' was started in another environment."""
    command = [sys.executable, "-m", "localqueue.cli", "pipeline", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.usefixtures("credentials")
def test_commands_take_the_credentials_of_an_object_store_from_the_environment(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = "s3://lake/by/command"
    with open_queue(url) as queue:
        work(queue, 10)

    *_, done = told_by_a_process("run", url, lake)
    endings = "SELECT outcome, count(*) AS n FROM messages GROUP BY outcome ORDER BY n"
    found = told_by_a_process("sql", lake, endings)
    assert run(["pipeline", "tables", lake, "--json"]) == 0
    tables = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert run(["pipeline", "status", lake, url, "--json"]) == 0
    status = json.loads(capsys.readouterr().out)

    assert found == [{"outcome": "dead_lettered", "n": 1}, {"outcome": "acked", "n": 7}]
    rows = {table["name"]: table["rows"] for table in tables}
    assert (rows["events"], rows["messages"]) == (done["events"], 8)
    assert [feed["lag"] for feed in status["store"]["feeds"]] == [0]


@pytest.mark.usefixtures("credentials")
def test_an_error_of_an_object_store_is_one_line_without_colours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")

    assert run(["pipeline", "tables", "s3://lake/by/command"]) == 1

    said = capsys.readouterr().err
    assert "Missing AccessKeyId" in said
    assert said.count("\n") == 1
    assert "\x1b" not in said


def test_a_commit_whose_answer_was_lost_is_known_to_have_happened(port: int) -> None:
    with unsteady(port) as proxy:
        lake = Lake("s3://lake/lost-answers", storage_options(proxy.address))
        table = lake.create(THINGS)
        rows = pa.Table.from_pylist([{"seq": 1, "at": START}], schema=THINGS.schema)
        file = write_table(table.location, rows, THINGS.statistics)
        proxy.lose_once(r"PUT .*/_delta_log/0+1\.json")

        assert table.append([file], Feed(), {HERE: 1})

        assert proxy.happened["lost on purpose"] == 1
        assert table.files() == [file.path]
        assert table.position(Feed(), HERE) == 1
        # Another one's commit is still another one's.
        other = lake.table("things")
        assert other is not None
        assert other.append([], Feed(), {HERE: 2})
        assert not table.append([], Feed(), {HERE: 2})


def test_a_log_stays_short_in_an_object_store(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localqueue.spark.pipeline.log_trimming.KEPT", 2)
    monkeypatch.setattr("localqueue.spark.pipeline.log_trimming.EVERY", 30)
    lake = Lake("s3://lake/short", storage_options(f"http://127.0.0.1:{port}"))
    table = lake.create(THINGS)

    for seq in range(1, 31):
        assert table.append([], Feed(), {HERE: seq})

    commits = [name for name in (table.location / "_delta_log").names() if name.endswith(".json")]
    assert sorted(int(name[:20]) for name in commits) == list(range(24, 31))
    found = lake.table("things")
    assert found is not None
    assert found.position(Feed(), HERE) == 30


def test_an_object_store_that_fails_now_and_then_costs_no_event(
    spark: SparkSession, url: str, port: int
) -> None:
    queue = open_queue(url)
    with unsteady(port, failing=0.06, losing=0.04) as proxy:
        lake = Lake("s3://lake/unsteady", storage_options(proxy.address))
        for _ in range(3):
            work(queue, 10)
            for _ in range(20):
                try:
                    Pipeline(url, lake, spark=spark).run()
                except LocalQueueError:
                    continue
                break
            else:
                raise AssertionError("it never succeeds")
        happened = proxy.happened
    steady = Lake("s3://lake/unsteady", storage_options(f"http://127.0.0.1:{port}"))

    assert happened["failed"] > 0
    assert happened["broken"] + happened["lost"] > 0
    reckon(steady, queue)
