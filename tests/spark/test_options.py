"""Options are read once, whatever their case, and a wrong one says what would be right."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from localqueue.errors import ConfigurationError
from localqueue.spark.options import Options

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
