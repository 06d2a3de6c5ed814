"""Every program in examples/ runs, twice in a row, and shows what it is about."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localqueue.stores.minimal import MinimalStore
from localqueue.stores.protocol import QueueStore
from localqueue.testing.store_contract import SimpleStoreContract

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

SHOWN = {
    "main_job": [
        "logo.png was put twice and is one message: True",
        "the urgent one comes first: urgent.png",
        "broken.png   given up after ValueError",
        "6 done, 4 failed and tried again, 1 given up",
        "attempt 4  broken.png   done",
        "audit has not looked yet and still has its own 2",
        "thumbnails      0      0         0     0",
        "released  2",
        "the file is still there",
    ],
    "spark.py": [
        "1000 messages wait\n999 is the widest",
        "990 done, 10 given up",
        "10 complaints, the first: ",
        "pixels are too odd",
    ],
    "publish_subscribe.py": [
        "mail fails with one and goes on with ['two', 'three']",
        "archive came late and reads ['one', 'two', 'three', 'four']",
        "waiting: {'web': 2, 'archive': 1, 'ticker': 1}",
    ],
    "priority_and_keys.py": [
        "by priority: ['fire', 'disk at 80 %', 'weekly report']",
        "turn 2: ['ada open', 'bob deposit']",
        "turn 4: ['ada close']",
    ],
    "bounded_producer.py": [
        "wait      received [0, 1, 2, 3, 4, 5], at most 3 waited: True",
        "refuse    stored [0, 1, 2], the producer knows of [3, 4, 5]",
        "oldest    stored [3, 4, 5], the journal has 3 dropped events",
        "slowed down: True",
        "[3, 4, 5] in the spare queue",
    ],
    "worker.py": [
        "fetched https://slow.example at attempt 2",
        "2 done, 3 tried again, 2 given up",
        "dead letter junk: Reject after 1 attempts",
        "dead letter https://down.example: TimeoutError after 3 attempts",
        "requeued, and waiting: 1",
        "stopped after 1, still waiting: 1",
    ],
    "effectively_once.py": [
        "charging order 7\n1 done, 1 to be sent\n1 done, 1 to be sent",
        "the ledger says ('succeeded', {'text': 'you paid 5'})",
        "mail for order-7: you paid 5\n0 to be sent",
    ],
    "metrics.py": [
        'localqueue_events_total{event="acked",queue="first"} 4.0',
        'localqueue_errors_total{error_type="ValueError",event="dead_lettered",queue="first"} 1.0',
        'localqueue_messages{queue="first",state="ready"} 0.0',
        'localqueue_messages{queue="second",state="ready"} 1.0',
    ],
    "custom_store.py": [
        "a stale receipt changes nothing: True",
        "in order: ['second', 'first']",
        "left: 0",
    ],
}

WITH_JAVA = {"main_job", "spark.py"}
WITH_SPARK = [
    "  acked               7",
    "1999 done, 1 given up",
    "  messages  2010",
    "numbers         2,000     1,999",
    "3  thumbnails  ValueError: broken.png is not an image",
    "the same as a page with charts",
]
WITHOUT_JAVA = ["left out, all else works: Spark needs Java 17 or newer; JAVA_HOME is"]
"""What the main job shows at its end."""


def run(name: str, folder: Path, **env: str) -> str:
    what = ["-m", "examples.main_job", str(folder)] if name == "main_job" else [EXAMPLES / name]
    answer = subprocess.run(
        [sys.executable, "-W", "error", *map(str, what)],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ
        | {"XDG_DATA_HOME": str(folder), "TMPDIR": str(folder), "PYTHONPATH": str(EXAMPLES.parent)}
        | env,
        cwd=folder,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    if name in WITH_JAVA:
        assert "Traceback" not in answer.stderr
    return answer.stdout


@pytest.mark.parametrize("name", sorted(set(SHOWN) - WITH_JAVA))
def test_an_example_runs_twice_and_shows_what_it_is_about(name: str, tmp_path: Path) -> None:
    first, second = run(name, tmp_path), run(name, tmp_path)

    for output in (first, second):
        assert [line for line in SHOWN[name] if line not in output] == []


@pytest.mark.timeout(600)
def test_the_main_job_runs_with_spark_and_again_without_java(tmp_path: Path) -> None:
    first = run("main_job", tmp_path)
    second = run("main_job", tmp_path, JAVA_HOME=str(tmp_path / "gone"))

    for output, end in ((first, WITH_SPARK), (second, WITHOUT_JAVA)):
        assert [line for line in SHOWN["main_job"] + end if line not in output] == []
    assert "<svg" in (tmp_path / "main_job.html").read_text()


@pytest.mark.timeout(600)
def test_the_spark_example_shows_what_it_is_about_or_what_is_missing(tmp_path: Path) -> None:
    output = run("spark.py", tmp_path)

    assert [line for line in SHOWN["spark.py"] if line not in output] == []
    with pytest.raises(AssertionError, match="left out: Spark needs Java"):
        run("spark.py", tmp_path, JAVA_HOME=str(tmp_path / "gone"))


def test_no_example_is_left_out() -> None:
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    programs |= {path.parent.name for path in EXAMPLES.glob("*/__main__.py")}
    assert set(SHOWN) == programs


def test_an_example_that_fails_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run("no_such_example.py", tmp_path)


def test_the_metrics_example_says_which_extra_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    with pytest.raises(SystemExit, match=r"localqueue\[metrics\]"):
        runpy.run_path(str(EXAMPLES / "metrics.py"))


class TestTheStoreOfTheExample(SimpleStoreContract):
    @pytest.fixture
    def store(self) -> Iterator[QueueStore]:
        names: dict[str, Any] = runpy.run_path(str(EXAMPLES / "custom_store.py"))
        store = MinimalStore(names["DictionaryStore"]())
        yield store
        store.close()
