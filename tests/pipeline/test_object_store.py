"""A lake in an object store: an S3 server run as a process."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from localqueue import PersistentQueue
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.pipeline import Pipeline
from localqueue.spark.pipeline.read_table import read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("moto", reason="the S3 server of the tests")


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """The storage options of a server of its own, with a bucket ``lake``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _make_bucket(server, f"{address}/lake")
        yield {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }
    finally:
        server.terminate()
        server.wait()


def _make_bucket(server: subprocess.Popen[bytes], address: str) -> None:
    """As soon as the server answers."""
    until = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(address, method="PUT")).close()
        except OSError:
            assert server.poll() is None, "the server ended"
            assert time.monotonic() < until
            time.sleep(0.05)
        else:
            return


def test_a_pipeline_brings_every_event_once_to_an_object_store(
    spark: SparkSession, url: str, s3: dict[str, str]
) -> None:
    lake = Lake("s3://lake/of/queues", s3)
    queue: PersistentQueue[Any] = PersistentQueue("jobs", store=url)
    for _ in range(2):
        queue.put_many([{"n": n} for n in range(5)])
        queue.ack_many(queue.get_messages(5))
        # Each with a checkpoint of its own that is gone afterwards: the lake knows where it ends.
        Pipeline(url, lake, spark=spark).run()

    events, messages = lake.table("events"), lake.table("messages")
    assert events is not None
    assert messages is not None
    seqs = sorted(row.seq for row in read_table(spark, events, ["seq"]).collect())
    assert seqs == [int(e.position[16:], 16) for e in queue.store.journal(limit=1000)]
    assert read_table(spark, messages, predicate="outcome = 'acked'").count() == 10
