"""What each of Spark's calls does in lease mode, called as Spark calls them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from localqueue import OrderingKeys, PersistentQueue
from localqueue.errors import (
    ConfigurationError,
    DamagedMessage,
    JournalForeign,
    StoreMissing,
)
from localqueue.spark import leadership
from localqueue.spark.lease import leased_rows
from localqueue.spark.lease.leased_stream import liveness_of
from localqueue.spark.lease.reader import LeaseStreamReader
from localqueue.spark.options import Options
from localqueue.spark.read import message_columns
from localqueue.spark.read.schema import spark_schema
from localqueue.spark.stream.reader import JournalStreamReader
from localqueue.stores.open import open_store
from localqueue.stores.protocol import Put
from localqueue.stores.sqlite.store import SQLiteQueueStore

Start = Callable[..., LeaseStreamReader]
ALL = ReadAllAvailable()


@pytest.fixture
def jobs(url: str) -> Iterator[PersistentQueue[Any]]:
    with PersistentQueue[Any]("jobs", store=url) as queue:
        yield queue


@pytest.fixture
def start(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """A reader as the process beside the driver has it; the one before it is dead by then."""
    monkeypatch.setattr(leadership, "PATIENCE", 0.0)
    readers: list[LeaseStreamReader] = []

    def start_one(**given: str) -> LeaseStreamReader:
        if readers:
            readers[-1].stop()
        readers.append(reader_of(url=url, **given))
        return readers[-1]

    yield start_one
    readers[-1].stop()


def reader_of(**given: str) -> LeaseStreamReader:
    options = Options.parse(
        {"queue": "jobs", "lease": "true", "consumerGroup": "nightly", "columns": "value"} | given
    )
    schema = spark_schema(options)
    assert isinstance(schema, StructType)
    return LeaseStreamReader(options, schema)


def batch(reader: LeaseStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    """The values of a batch."""
    rows = [
        row
        for partition in reader.partitions(start, end)
        for part in reader.read(partition)
        for row in part.to_pylist()
    ]
    return [json.loads(row["value"]) for row in rows]


def test_a_batch_has_what_was_leased_for_it_and_no_more_than_asked_for(
    jobs: PersistentQueue[Any], start: Start
) -> None:
    jobs.put_many(range(5))
    reader = start()
    first = reader.initialOffset()

    second = reader.latestOffset(first, ReadMaxRows(3))
    assert batch(reader, first, second) == [0, 1, 2]
    third = reader.latestOffset(second, ReadMaxRows(3))
    assert batch(reader, second, third) == [3, 4]

    assert first["0"] == 0
    assert reader.latestOffset(third, ReadMaxRows(3)) == third
    assert batch(reader, third, third) == []


def test_the_next_start_acknowledges_what_the_sink_has_and_nothing_else(
    jobs: PersistentQueue[Any], start: Start
) -> None:
    jobs.put_many(range(4))
    reader = start()
    first = reader.initialOffset()

    second = reader.latestOffset(first, ReadMaxRows(3))
    assert jobs.stats().inflight == 3
    third = reader.latestOffset(second, ReadMaxRows(3))
    assert (jobs.stats().inflight, jobs.stats().total) == (1, 1)
    reader.commit(second)
    assert jobs.stats().total == 1

    reader.commit(third)

    assert jobs.stats().total == 0


def test_the_same_batch_comes_again_without_what_belongs_to_someone_else_by_then(
    jobs: PersistentQueue[Any], start: Start, url: str
) -> None:
    jobs.put_many(range(3))
    reader = start()
    first = reader.initialOffset()
    second = reader.latestOffset(first, ALL)

    again = start()

    assert batch(again, first, second) == [0, 1, 2]
    with closing(open_store(url)) as store:
        _, lost, _ = store.leased_under(liveness_of("nightly", "jobs"), "jobs")
    jobs.release(lost.id)
    theirs = jobs.get_message()
    assert batch(again, first, second) == [0, 2]
    assert again.latestOffset(second, ALL) == second
    assert jobs.ack(theirs)


def test_an_operator_takes_a_message_out_of_a_batch_that_fails_again_and_again(
    jobs: PersistentQueue[Any], start: Start
) -> None:
    ids = [jobs.put(value).id for value in range(3)]
    reader = start()
    first = reader.initialOffset()
    second = reader.latestOffset(first, ALL)

    jobs.dead_letter(ids[1])

    assert batch(start(), first, second) == [0, 2]


def test_an_operator_gives_the_messages_of_a_stream_back_that_will_not_come_again(
    jobs: PersistentQueue[Any], start: Start, url: str
) -> None:
    jobs.put_many(range(3))
    reader = start()
    reader.latestOffset(reader.initialOffset(), ALL)
    reader.stop()

    with closing(open_store(url)) as store:
        store.end_leases_of(liveness_of("nightly", "jobs"), (), now=0.0)

    assert [jobs.get() for _ in range(3)] == [0, 1, 2]


def test_what_was_damaged_while_it_was_held_is_a_dead_letter_and_in_no_batch(
    jobs: PersistentQueue[Any],
    start: Start,
    store_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    jobs.put_many(["first", "second"])
    reader = start()
    first = reader.initialOffset()
    second = reader.latestOffset(first, ALL)
    with closing(sqlite3.connect(store_path)) as file, file:
        file.execute("UPDATE message SET value = ? WHERE value = ?", (b'"other"', b'"first"'))

    assert batch(reader, first, second) == ["second"]
    reader.latestOffset(second, ALL)

    assert (jobs.stats().dead, jobs.stats().total) == (1, 1)
    assert "lost their lease" not in caplog.text


def test_what_is_no_text_is_an_error_or_null_as_the_mode_says(
    jobs: PersistentQueue[Any], start: Start
) -> None:
    jobs.store.enqueue_many([Put("jobs", b"\xff")], now=1.0)
    reader = start(mode="PERMISSIVE")
    first = reader.initialOffset()
    second = reader.latestOffset(first, ALL)
    [part] = reader.partitions(first, second)

    assert [batch.to_pylist() for batch in reader.read(part)] == [[{"value": None}]]
    with pytest.raises(DamagedMessage, match="is not text"):
        start(mode="FAILFAST").partitions(first, second)


def test_leased_messages_have_every_column_that_messages_have() -> None:
    assert list(leased_rows._COLUMNS) == list(message_columns.COLUMNS)


def test_leases_that_never_reached_the_offset_log_are_in_the_next_batch(
    jobs: PersistentQueue[Any], start: Start
) -> None:
    jobs.put_many(range(5))
    before = start()
    first = before.initialOffset()
    before.latestOffset(first, ReadMaxRows(2))

    reader = start()
    second = reader.latestOffset(first, ReadMaxRows(3))

    assert batch(reader, first, second) == [0, 1, 2]


def test_they_are_also_when_there_is_nothing_new_to_lease(
    jobs: PersistentQueue[Any], start: Start
) -> None:
    jobs.put_many(range(2))
    before = start()
    first = before.initialOffset()
    before.latestOffset(first, ALL)

    reader = start()
    second = reader.latestOffset(first, ALL)

    assert batch(reader, first, second) == [0, 1]


def test_a_query_without_its_checkpoint_begins_with_what_no_sink_is_known_to_have(
    jobs: PersistentQueue[Any], start: Start
) -> None:
    jobs.put_many(range(6))
    before = start()
    second = before.latestOffset(before.initialOffset(), ReadMaxRows(2))
    before.latestOffset(second, ReadMaxRows(2))

    reader = start()
    first = reader.initialOffset()
    end = reader.latestOffset(first, ReadMaxRows(4))

    assert first["0"] == 0
    assert batch(reader, first, end) == [2, 3, 4, 5]


def test_reporting_leases_nothing_and_tells_how_many_wait(
    jobs: PersistentQueue[Any], start: Start
) -> None:
    jobs.put_many(range(3))
    reader = start()

    report = reader.reportLatestOffset()

    assert (report["lag"], jobs.stats().ready) == (3, 3)


def test_available_now_takes_what_was_there_and_ends(
    jobs: PersistentQueue[Any], start: Start
) -> None:
    jobs.put_many(range(3))
    reader = start()
    reader.prepareForTriggerAvailableNow()
    first = reader.initialOffset()
    jobs.put_many(range(3, 6))

    second = reader.latestOffset(first, ReadMaxRows(2))
    third = reader.latestOffset(second, ReadMaxRows(2))

    assert batch(reader, second, third) == [2]
    assert reader.latestOffset(third, ReadMaxRows(2)) == third
    assert (jobs.stats().ready, jobs.stats().inflight) == (3, 0)


def test_available_now_takes_all_messages_of_a_key_each_after_the_one_before(
    url: str, start: Start
) -> None:
    with PersistentQueue[int]("jobs", store=url, ordering_policy=OrderingKeys()) as jobs:
        for value in range(3):
            jobs.put(value, ordering_key="k")
        reader = start()
        reader.prepareForTriggerAvailableNow()
        offsets = [reader.initialOffset()]
        seen = []

        while (end := reader.latestOffset(offsets[-1], ALL)) != offsets[-1]:
            seen.append(batch(reader, offsets[-1], end))
            offsets.append(end)

        assert seen == [[0], [1], [2]]
        assert jobs.stats().total == 0


@pytest.mark.parametrize("store", ["0123456789abcdef", None, 7])
def test_an_offset_of_another_store_is_refused_and_acknowledges_nothing(
    jobs: PersistentQueue[Any], start: Start, store: object
) -> None:
    jobs.put_many(range(2))
    reader = start()
    end = reader.latestOffset(reader.initialOffset(), ALL)

    with pytest.raises(JournalForeign, match="checkpointLocation"):
        reader.latestOffset({**end, "store": store}, ALL)
    assert jobs.stats().inflight == 2


def test_a_checkpoint_of_another_stream_is_refused_and_acknowledges_nothing(
    jobs: PersistentQueue[Any], start: Start
) -> None:
    jobs.put_many(range(4))
    nightly = start(maxRowsPerTrigger="2")
    nightly.latestOffset(nightly.initialOffset(), nightly.getDefaultReadLimit())
    hourly = start(consumerGroup="hourly")
    end = hourly.latestOffset(hourly.initialOffset(), ALL)
    again = start()

    with pytest.raises(JournalForeign, match="belongs to the stream 'hourly'"):
        again.latestOffset(end, ALL)
    with pytest.raises(JournalForeign, match="lease mode never wrote"):
        again.latestOffset({name: end[name] for name in ("store", "0")}, ALL)
    assert jobs.stats().inflight == 4


def test_a_checkpoint_of_another_queue_is_refused_and_acknowledges_nothing(
    url: str, jobs: PersistentQueue[Any], start: Start
) -> None:
    jobs.put("held, and in no sink")
    before = start()
    before.latestOffset(before.initialOffset(), ALL)
    with PersistentQueue[Any]("others", store=url) as others:
        others.put("in the sink")
        reader = start(queue="others")
        end = reader.latestOffset(reader.initialOffset(), ALL)

        with pytest.raises(JournalForeign, match="of queue 'others', and this one is of 'jobs'"):
            start().latestOffset(end, ALL)
    assert jobs.stats().inflight == 1


def test_a_stream_of_the_journal_refuses_a_checkpoint_of_lease_mode(
    url: str, jobs: PersistentQueue[Any], start: Start
) -> None:
    jobs.put_many(range(2))
    leasing = start()
    end = leasing.latestOffset(leasing.initialOffset(), ALL)
    options = Options.parse({"url": url, "queue": "jobs", "columns": "value"})
    schema = spark_schema(options)
    assert isinstance(schema, StructType)
    reading = JournalStreamReader(options, schema)

    with pytest.raises(JournalForeign, match="stream 'nightly' of lease mode"):
        reading.latestOffset(end, ALL)
    reading.stop()


def test_a_backup_that_nobody_has_opened_is_refused(
    store_path: Path, jobs: PersistentQueue[Any]
) -> None:
    jobs.put("a")
    copy = store_path.with_name("copy.sqlite3")
    with SQLiteQueueStore(store_path) as store:
        store.backup(copy)

    with pytest.raises(ConfigurationError, match="nobody has opened"):
        reader_of(url=f"sqlite:///{copy}").initialOffset()


def test_an_offset_ahead_of_the_store_is_refused_before_anything_is_leased_below_it(
    jobs: PersistentQueue[Any], start: Start
) -> None:
    jobs.put_many(range(2))
    reader = start()
    ahead = {**reader.initialOffset(), "0": 1_000_000}

    with pytest.raises(JournalForeign, match="older copy"):
        reader.latestOffset(ahead, ALL)
    with pytest.raises(JournalForeign, match="older copy"):
        reader.commit(ahead)
    assert jobs.stats().ready == 2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"content": "journal"}, "takes messages, not journal"),
        ({"queue": "a,b"}, "one queue"),
        ({"startingOffsets": "latest"}, "what is ready"),
        ({"endingTimestamp": "1700000000000"}, "what is ready"),
    ],
)
def test_what_lease_mode_cannot_do_is_refused(url: str, given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        reader_of(url=url, **given)


def test_it_needs_a_name(url: str) -> None:
    options = Options.parse({"url": url, "queue": "jobs", "lease": "true"})

    with pytest.raises(ConfigurationError, match="consumerGroup"):
        LeaseStreamReader(options, StructType())


def test_a_store_or_a_queue_that_is_not_there_is_an_error_and_is_not_made(
    url: str, store_path: Path, jobs: PersistentQueue[Any]
) -> None:
    with pytest.raises(StoreMissing):
        reader_of(url=url).initialOffset()
    assert not store_path.exists()

    jobs.put(1)

    with pytest.raises(ConfigurationError, match="'elsewhere'"):
        reader_of(url=url, queue="elsewhere").initialOffset()
