"""Compacted topics and replays where the lake is an object store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from localqueue import Journal, PersistentQueue
from localqueue.spark.pipeline.compacted.topic import Compacted
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.pipeline import Pipeline
from localqueue.spark.pipeline.read_table import read_table
from localqueue.spark.pipeline.replaying.replay import replay
from tests.pipeline.archives import now
from tests.pipeline.s3_server import s3_server, storage_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("moto", reason="the S3 server of the tests")


@pytest.mark.long
def test_a_topic_is_kept_and_its_messages_come_back(spark: SparkSession, url: str) -> None:
    prices = [{"sku": "a", "price": 1}, {"sku": "b", "price": 2}, {"sku": "a", "price": None}]
    queue = PersistentQueue[Any]("prices", store=url, journal_policy=Journal(payloads=True))
    queue.put_many(prices)
    until = now(queue)
    queue.ack_many(queue.get_messages(10))
    with s3_server() as port:
        lake = Lake("s3://lake/topics", storage_options(f"http://127.0.0.1:{port}"))
        topic = Compacted("prices", "sku", "price")
        Pipeline(url, lake, spark=spark, compacted=[topic]).run()

        table = lake.table(topic.name)
        assert table is not None
        found = [tuple(row) for row in read_table(spark, table, ["key", "value"]).collect()]
        ages_ago = datetime(2020, 1, 1, tzinfo=UTC)
        done = replay(url, lake, since=ages_ago, until=until, spark=spark)

    assert found == [("b", "2")]
    assert done.counts.put == 3
    assert [message.value for message in queue.get_messages(10)] == prices
    queue.close()
