"""What a batch read of the journal says of events that go while somebody has its DataFrame."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from localqueue import PersistentQueue
from localqueue.errors import JournalTrimmed
from localqueue.policies import Journal
from localqueue.spark.read.batch_reader import BatchReader
from localqueue.spark.read.schema import spark_schema
from tests.spark.reading import options_of

FEW = 10
TRIMS = 6_000
"""Events enough for a journal of a hundred rows to be trimmed."""


@pytest.fixture
def short(store_path: Path) -> Iterator[PersistentQueue[Any]]:
    """A queue whose journal keeps a hundred events, with few in it."""
    policy = Journal(max_rows=100)
    with PersistentQueue[Any]("short", store_path=store_path, journal_policy=policy) as queue:
        queue.put_many(range(FEW))
        yield queue


def reader_of(url: str, **given: str) -> BatchReader:
    options = options_of(url, **{"queue": "short", "content": "journal"} | given)
    schema = spark_schema(options)
    assert isinstance(schema, StructType)
    return BatchReader(options, schema)


def enqueued(reader: BatchReader, tasks: Any) -> int:
    """How many enqueued events the tasks read."""
    found = 0
    for task in tasks:
        # As it reaches a task.
        reading, task = pickle.loads(pickle.dumps((reader, task)))
        for batch in reading.read(task):
            found += batch.column("kind").to_pylist().count("enqueued")
    return found


@pytest.mark.parametrize("offsets", ["earliest", '{"0": 0}'])
def test_events_that_go_between_two_uses_of_a_dataframe_are_a_loss(
    url: str, short: PersistentQueue[Any], offsets: str
) -> None:
    reader = reader_of(url, startingOffsets=offsets)
    tasks = reader.partitions()
    assert enqueued(reader, tasks) == FEW

    short.put_many(range(TRIMS))

    with pytest.raises(JournalTrimmed, match="'short' up to"):
        enqueued(reader, tasks)


def test_without_fail_on_data_loss_the_rest_is_read_and_the_gap_logged(
    url: str, short: PersistentQueue[Any], caplog: pytest.LogCaptureFixture
) -> None:
    reader = reader_of(url, failOnDataLoss="false")
    tasks = reader.partitions()
    short.put_many(range(TRIMS))

    assert enqueued(reader, tasks) < FEW
    assert "are gone before they were read" in caplog.text


def test_what_was_gone_before_is_no_loss_for_a_read_of_what_there_is(
    url: str, short: PersistentQueue[Any]
) -> None:
    short.put_many(range(TRIMS))

    reader = reader_of(url)

    assert 0 < enqueued(reader, reader.partitions()) < TRIMS
    with pytest.raises(JournalTrimmed, match="after position 0 are gone"):
        reader_of(url, startingOffsets='{"0": 0}').partitions()
