"""Readers that know nothing of this project: the tables are Delta Lake."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.pipeline import Pipeline
from tests.pipeline.reckoning import rows_of
from tests.pipeline.working import open_queue, work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

duckdb = pytest.importorskip("duckdb")
extension = pytest.importorskip("duckdb_extension_delta", reason="DuckDB reads Delta Lake with it")

TABLES = ("events", "attempts", "messages", "minutes", "errors", "quarantine")


def test_duckdb_reads_every_table(spark: SparkSession, url: str, lake: Lake) -> None:
    with open_queue(url) as queue:
        pipeline = Pipeline(url, lake, spark=spark)
        for _ in range(2):
            work(queue, 10)
            pipeline.run()
    [path] = Path(extension.__file__).parent.glob("extensions/*/delta.duckdb_extension")
    db = duckdb.connect()
    db.execute(f"LOAD '{path}'")

    def ask(query: str) -> list[tuple[Any, ...]]:
        tables = {name: f"delta_scan('{lake.location.uri}/{name}')" for name in TABLES}
        found: list[tuple[Any, ...]] = db.sql(query.format(**tables)).fetchall()
        return found

    for name in TABLES:
        assert ask(f"SELECT count(*) FROM {{{name}}}") == [(len(rows_of(lake, name)),)]
    assert ask("SELECT outcome, count(*) FROM {messages} GROUP BY 1 ORDER BY 1") == [
        ("acked", 14),
        ("dead_lettered", 2),
    ]
    [(lives, put, late)] = ask(
        'SELECT sum(lives), sum(enqueued), max(epoch("minute")) FROM {minutes}'
    )
    assert (lives, put) == (16, 20)
    assert late % 60 == 0
    [(text, times)] = ask("SELECT error_text, sum(count) FROM {errors} GROUP BY 1")
    assert (text, times) == ("no", 2)
    joined = "SELECT count(*) FROM {messages} m JOIN {events} e USING (store, shard, seq)"
    assert ask(joined) == [(16,)]
