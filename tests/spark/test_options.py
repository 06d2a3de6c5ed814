"""Options are read once, whatever their case, and a wrong one says what would be right."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from localqueue.errors import ConfigurationError
from localqueue.spark.data_source import LocalQueueSource
from localqueue.spark.options import OPTIONS, Direction, Options

URL = "sqlite:////data/jobs.sqlite3"


def parse(**given: str) -> Options:
    return Options.parse({"url": URL, **given})


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"queue": "jobs"}, "queues", ("jobs",)),
        ({"QUEUE": "a, b"}, "queues", ("a", "b")),
        ({"content": "Journal"}, "content", "journal"),
        ({"columns": "id,value"}, "columns", ("id", "value")),
        ({"payloadSchema": " n int "}, "payload_schema", "n int"),
        ({"mode": "permissive"}, "mode", "PERMISSIVE"),
        ({"startingOffsets": "Latest"}, "starting_offsets", "latest"),
        ({"startingOffsets": '{"0": 1200}'}, "starting_offsets", {"0": 1200}),
        ({"endingOffsets": '{"store": "ab", "0": 7}'}, "ending_offsets", {"store": "ab", "0": 7}),
        ({"startingTimestamp": "1500"}, "starting_timestamp", 1.5),
        ({"startingTimestamp": "1970-01-01T00:01:00Z"}, "starting_timestamp", 60.0),
        ({"endingTimestamp": "1970-01-01 00:01"}, "ending_timestamp", 60.0),
        ({"endingTimestamp": "1970-01-01T01:01:00+01:00"}, "ending_timestamp", 60.0),
        ({"maxRowsPerTrigger": "5000"}, "max_rows_per_trigger", 5000),
        ({"minPartitions": "8"}, "min_partitions", 8),
        ({"failOnDataLoss": "false"}, "fail_on_data_loss", False),
        ({"consumerGroup": "billing"}, "consumer_group", "billing"),
        ({"lease": "TRUE"}, "lease", True),
        ({"leaseTimeout": "30.5"}, "lease_timeout", 30.5),
        ({"sinkId": "daily"}, "sink_id", "daily"),
        ({"batchId": "2026-01-31"}, "batch_id", "2026-01-31"),
        ({"stagingDirectory": "/shared"}, "staging_directory", "/shared"),
        ({"checkpointlocation": "/checkpoint"}, "checkpoint_location", "/checkpoint"),
    ],
)
def test_an_option_fills_its_field(given: dict[str, str], field: str, value: object) -> None:
    options = parse(**given)

    assert getattr(options, field) == value


def test_what_is_not_given_has_a_default_that_loses_nothing() -> None:
    options = parse()

    assert (options.content, options.mode, options.fail_on_data_loss) == (
        "messages",
        "FAILFAST",
        True,
    )
    assert (options.starting_offsets, options.ending_offsets) == ("earliest", "latest")
    assert not options.lease
    assert options.lease_timeout == 600.0


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"quee": "jobs"}, "unknown option 'quee'; did you mean queue?"),
        ({"subscribe": "jobs"}, "did you mean queue?"),
        ({"maxOffsetsPerTrigger": "1"}, "did you mean maxRowsPerTrigger?"),
        ({"zzz": "1"}, "unknown option 'zzz'; known are url, queue, content"),
        ({"path": "/data"}, "a queue has no path; leave load.. and save.. empty"),
        ({"queue": "a,,b"}, "option queue: a name is missing in 'a,,b'"),
        ({"queue": " "}, "option queue: a name is missing"),
        ({"columns": "id,id"}, "option columns: a name is there twice"),
        ({"content": "topics"}, "'topics' is not one of messages, dead_letters, journal"),
        ({"mode": "DROPMALFORMED"}, "is not one of FAILFAST, PERMISSIVE"),
        ({"startingOffsets": "first"}, "option startingOffsets: 'first' is neither earliest"),
        ({"startingOffsets": "{}"}, "is neither earliest"),
        ({"startingOffsets": '{"0": -1}'}, "is neither earliest"),
        ({"startingOffsets": '{"0": true}'}, "is neither earliest"),
        ({"startingOffsets": '{"jobs": 1}'}, "is neither earliest"),
        ({"startingOffsets": "[1]"}, "is neither earliest"),
        ({"startingTimestamp": "yesterday"}, "'yesterday' is neither milliseconds since 1970"),
        ({"maxRowsPerTrigger": "0"}, "'0' is not a whole number from 1 on"),
        ({"minPartitions": "2.5"}, "'2.5' is not a whole number"),
        ({"failOnDataLoss": "no"}, "'no' is not one of true, false"),
        ({"leaseTimeout": "0"}, "'0' is not a number of seconds above 0"),
        ({"leaseTimeout": "inf"}, "'inf' is not a number of seconds"),
        ({"leaseTimeout": "nan"}, "'nan' is not a number of seconds"),
        ({"consumerGroup": ""}, "option consumerGroup: it is empty"),
        ({"url": "jobs.sqlite3"}, "'jobs.sqlite3' is not the URL of a store"),
        ({"url": "memory://"}, "a store in memory is seen by its own process only"),
        ({"url": "sqlite:///jobs.sqlite3"}, "has a relative path"),
    ],
)
def test_a_wrong_option_says_what_would_be_right(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        parse(**given)


READING = {
    *("content", "columns", "where", "payloadSchema", "mode", "startingOffsets", "endingOffsets"),
    *("startingTimestamp", "endingTimestamp", "maxRowsPerTrigger", "minPartitions"),
    *("failOnDataLoss", "consumerGroup", "lease", "leaseTimeout"),
}
WRITING = {
    *("sinkId", "batchId", "stagingDirectory", "putTimeout", "dedupeWindow", "checkpointLocation"),
}


@pytest.mark.parametrize(
    ("name", "direction", "other"),
    [
        *((name, "reading", "writing") for name in sorted(READING)),
        *((name, "writing", "reading") for name in sorted(WRITING)),
    ],
)
def test_an_option_of_the_other_direction_is_an_error_that_says_so(
    name: str, direction: Direction, other: Direction
) -> None:
    with pytest.raises(ConfigurationError, match=f"option {name} is for {direction} only"):
        Options.parse({"url": URL, name.lower(): "1"}, other)


def test_an_option_is_taken_in_its_own_direction_and_those_of_both_in_both() -> None:
    assert {*READING, *WRITING, "url", "queue"} == {option.name for option in OPTIONS.values()}
    assert Options.parse({"url": URL, "queue": "a", "lease": "true"}, "reading").lease
    assert Options.parse({"url": URL, "queue": "a", "sinkId": "s"}, "writing").sink_id == "s"


def test_a_read_takes_no_options_of_a_write_nor_the_other_way_round() -> None:
    schema = StructType([StructField("value", StringType())])
    read = LocalQueueSource({"url": URL, "queue": "a", "sinkId": "s"})
    write = LocalQueueSource({"url": URL, "queue": "a", "startingOffsets": "latest"})

    asks: list[Callable[[], object]]
    asks = [read.schema, lambda: read.reader(schema), lambda: read.streamReader(schema)]
    for ask in asks:
        with pytest.raises(ConfigurationError, match="option sinkId is for writing only"):
            ask()
    asks = [lambda: write.writer(schema, False), lambda: write.streamWriter(schema, False)]
    for ask in asks:
        with pytest.raises(ConfigurationError, match="option startingOffsets is for reading only"):
            ask()


def test_a_store_must_be_named() -> None:
    with pytest.raises(ConfigurationError, match="needs the option url"):
        Options.parse({"queue": "jobs"})


@pytest.mark.parametrize("queues", ["", "a,b"])
def test_what_needs_one_queue_says_so(queues: str) -> None:
    options = parse(queue=queues) if queues else parse()

    with pytest.raises(ConfigurationError, match="needs one queue in the option queue"):
        _ = options.queue
    assert parse(queue="a").queue == "a"


def test_options_survive_a_journey_to_another_process() -> None:
    options = parse(queue="a,b", startingOffsets='{"0": 3}')

    assert pickle.loads(pickle.dumps(options)) == options


def test_options_cannot_be_changed() -> None:
    options: Any = parse()

    with pytest.raises(dataclasses.FrozenInstanceError):
        options.url = "sqlite:////other"
