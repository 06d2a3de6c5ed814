"""Spark's own Declarative Pipelines, with a queue as the source of a streaming table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from localqueue import Journal, PersistentQueue
from localqueue.errors import ConfigurationError
from localqueue.spark.pipeline.declarative import run_declarative

SPEC = """
name: shop
storage: {storage}
configuration:
  spark.sql.shuffle.partitions: "2"
libraries:
  - glob:
      include: definitions.py
"""

DEFINITIONS = """
from pyspark import pipelines as dp
from pyspark.sql import functions as f


@dp.table
def orders():
    source = spark.readStream.format("localqueue").options(url={url!r}, queue="orders")
    return source.options(columns="id", payloadSchema="item string, price int").load()


@dp.materialized_view
def revenue():
    return spark.read.table("orders").groupBy("item").agg(f.sum("price").alias("total"))
"""


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(folder).to_pylist()
    return found


@pytest.mark.timeout(600)
def test_a_pipeline_of_spark_reads_queues_and_goes_on_where_it_was(
    tmp_path: Path, url: str
) -> None:
    queue = PersistentQueue[Any]("orders", store=url, journal_policy=Journal(payloads=True))
    queue.put_many([{"item": "lamp", "price": 40}, {"item": "desk", "price": 100}])
    spec = tmp_path / "spark-pipeline.yml"
    spec.write_text(SPEC.format(storage=(tmp_path / "storage").as_uri()))
    (tmp_path / "definitions.py").write_text(DEFINITIONS.format(url=url))

    def run() -> list[str]:
        command = ["pipeline", "declarative", str(spec), "--master", "local[2]", "--json"]
        # The warehouse and its catalogue are where the process runs.
        done = subprocess.run([sys.executable, "-m", "localqueue.cli", *command], cwd=tmp_path,
                              capture_output=True, text=True, check=True)  # fmt: skip
        return [json.loads(line)["event"] for line in done.stdout.splitlines()]

    assert run()[-1] == "Run is COMPLETED."
    queue.put({"item": "lamp", "price": 45})
    assert run()[-1] == "Run is COMPLETED."

    warehouse = tmp_path / "spark-warehouse"
    assert sorted(row["price"] for row in rows(warehouse / "orders")) == [40, 45, 100]
    assert {row["item"]: row["total"] for row in rows(warehouse / "revenue")} == {
        "lamp": 85,
        "desk": 100,
    }


@pytest.mark.parametrize("text", ["", "name: shop", "storage: x\nname: y\nnonsense: 1"])
def test_a_spec_that_cannot_be_meant_is_refused(tmp_path: Path, text: str) -> None:
    spec = tmp_path / "spec.yml"
    if text:
        spec.write_text(text)

    with pytest.raises(ConfigurationError, match=r"spec\.yml cannot be used as a spec"):
        run_declarative(spec)
