"""Readers that know nothing of this project: the tables are Delta Lake."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.minutes import MINUTES
from localqueue.spark.pipeline.pipeline import Pipeline
from localqueue.spark.pipeline.report.views import make_views
from tests.pipeline.lakes import fill, minute
from tests.pipeline.reckoning import rows_of
from tests.pipeline.working import open_queue, work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("events", "attempts", "messages", "minutes", "errors", "quarantine")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipeline.md"

Rows = list[tuple[Any, ...]]
Asking = Callable[[str], Rows]
"""Answers SQL in which ``{messages}`` stands for the table of that name."""


def there(lake: Lake) -> dict[str, str]:
    return {name: f"{lake.location.uri}/{name}" for name in TABLES if lake.table(name)}


def duckdb(lake: Lake) -> Asking:
    duckdb = pytest.importorskip("duckdb")
    extension = pytest.importorskip(
        "duckdb_extension_delta", reason="DuckDB reads Delta Lake with it"
    )
    [path] = Path(extension.__file__).parent.glob("extensions/*/delta.duckdb_extension")
    db = duckdb.connect()
    db.execute(f"LOAD '{path}'")
    tables = {name: f"delta_scan('{uri}')" for name, uri in there(lake).items()}

    def ask(query: str) -> Rows:
        found: Rows = db.sql(query.format(**tables)).fetchall()
        return found

    return ask


def polars(lake: Lake) -> Asking:
    pl = pytest.importorskip("polars")
    db = pl.SQLContext({name: pl.scan_delta(uri) for name, uri in there(lake).items()})

    def ask(query: str) -> Rows:
        asked = query.format(**{name: name for name in TABLES})
        found: Rows = db.execute(asked).collect().rows()
        return found

    return ask


STRANGERS = [duckdb, polars]


@pytest.fixture
def filled(spark: SparkSession, url: str, lake: Lake) -> Lake:
    with open_queue(url) as queue:
        pipeline = Pipeline(url, lake, spark=spark)
        for _ in range(2):
            work(queue, 10)
            pipeline.run()
    return lake


@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_stranger_reads_every_table(stranger: Callable[[Lake], Asking], filled: Lake) -> None:
    ask = stranger(filled)

    for name in TABLES:
        assert ask(f"SELECT count(*) FROM {{{name}}}") == [(len(rows_of(filled, name)),)]
    assert ask("SELECT outcome, count(*) FROM {messages} GROUP BY outcome ORDER BY outcome") == [
        ("acked", 14),
        ("dead_lettered", 2),
    ]
    assert ask("SELECT sum(lives), sum(enqueued) FROM {minutes}") == [(16, 20)]
    assert all(began.second == 0 for (began,) in ask('SELECT "minute" FROM {minutes}'))
    errors = "SELECT error_text, sum(count) AS n FROM {errors} GROUP BY error_text"
    assert ask(errors) == [("no", 2)]
    joined = "SELECT count(*) FROM {messages} m JOIN {events} e USING (store, shard, seq)"
    assert ask(joined) == [(16,)]


@pytest.mark.parametrize("stranger", STRANGERS)
def test_the_formulas_of_the_page_tell_the_rates_that_spark_tells(
    stranger: Callable[[Lake], Asking], lake: Lake, spark: SparkSession
) -> None:
    formulas = dict(re.findall(r"^\| `(\w+)` \| `(.+? / .+?)` \|", PAGE.read_text(), re.MULTILINE))
    some = minute(
        0, attempts=10, failures=4, retries=3, died=1, lives=5, busy=30.0, workers=2,
        slo_met=4, slo_missed=1,
    )  # fmt: skip
    fill(lake, MINUTES, [some, minute(1, workers=0)])
    ask = stranger(lake)
    make_views(spark, lake)

    told = ask(f'SELECT {", ".join(formulas.values())} FROM {{minutes}} ORDER BY "minute"')

    shown = spark.sql(f"SELECT {', '.join(formulas)} FROM minutes ORDER BY minute").collect()
    assert list(formulas) == [
        "failure_rate", "retry_rate", "dead_letter_rate", "utilisation", "burn_rate",
    ]  # fmt: skip
    assert told == [pytest.approx(tuple(row)) for row in shown]
    assert told == [pytest.approx((0.4, 0.3, 0.2, 0.25, 20.0)), (None,) * 5]
