"""Where a stream begins, how far its batches go, and what it says when the journal has moved on.

The reader as Spark calls it, without Spark around it: its process, its order of calls.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from localqueue import PersistentQueue, QueueMessage, SQLiteQueueStore
from localqueue.errors import (
    ConfigurationError,
    JournalForeign,
    JournalTrimmed,
    StoreMissing,
)
from localqueue.policies import Journal, PublishSubscribeRouting, StaticFanoutSubscriptions
from localqueue.spark import leadership
from localqueue.spark.options import Options
from localqueue.spark.read.schema import spark_schema
from localqueue.spark.stream import reader as stream_reader
from localqueue.spark.stream.reader import JournalStreamReader

ALL = ReadAllAvailable()
TRIMS = 6_000
"""Events enough for a journal of a hundred rows to be trimmed."""


class Stream:
    """A query, as far as the reader sees one: offsets and batches, and a checkpoint in memory."""

    def __init__(self, url: str, **options: str) -> None:
        self._given = {"url": url, **options}
        self.committed: dict[str, Any] | None = None
        """The end of the newest batch that the sink has."""
        self.reader = self._made()

    def _made(self) -> JournalStreamReader:
        options = Options.parse(self._given)
        schema = spark_schema(options)
        assert isinstance(schema, StructType)
        return JournalStreamReader(options, schema)

    def killed(self, **options: str) -> Stream:
        """The same query again, in a new process, perhaps with other options."""
        self.reader.stop()
        self._given |= options
        self.reader = self._made()
        return self

    def start(self) -> dict[str, Any]:
        return self.reader.initialOffset() if self.committed is None else self.committed

    def plan(self, limit: ReadLimit | None = None) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The offsets of the next batch; None when there is none."""
        start = self.start()
        end = self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit())
        return None if end == start else (start, end)

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for task in self.reader.partitions(start, end):
            # As it reaches a task.
            reader, task = pickle.loads(pickle.dumps((self._made(), task)))
            for batch in reader.read(task):
                found += batch.to_pylist()
        return found

    def batch(self, limit: ReadLimit | None = None) -> list[dict[str, Any]]:
        """The rows of the next batch, which the sink has then."""
        planned = self.plan(limit)
        if planned is None:
            return []
        rows = self.rows(*planned)
        self.committed = json.loads(json.dumps(planned[1]))
        return rows


@pytest.fixture(autouse=True)
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "PATIENCE", 0.0)


@pytest.fixture
def jobs(store_path: Path) -> Iterator[PersistentQueue[Any]]:
    with PersistentQueue[Any]("jobs", store_path=store_path) as queue:
        yield queue


@pytest.fixture
def short(store_path: Path) -> Iterator[PersistentQueue[Any]]:
    """A queue whose journal keeps a hundred events."""
    policy = Journal(max_rows=100)
    with PersistentQueue[Any]("short", store_path=store_path, journal_policy=policy) as queue:
        yield queue


def values(rows: list[dict[str, Any]]) -> list[Any]:
    return [json.loads(row["value"]) for row in rows]


def seqs(rows: list[dict[str, Any]]) -> list[int]:
    return [row["seq"] for row in rows]


def write_much(queue: PersistentQueue[Any]) -> None:
    for _ in range(3):
        queue.put_many(range(TRIMS // 3))


def newest(queue: PersistentQueue[Any]) -> int:
    return int(queue.store.journal_end()[16:], 16)


# --- where it begins --------------------------------------------------------------------------
def test_a_stream_begins_with_all_that_is_kept(url: str, jobs: PersistentQueue[Any]) -> None:
    jobs.put_many(["a", "b"])

    stream = Stream(url, queue="jobs", content="messages")

    assert values(stream.batch()) == ["a", "b"]


def test_latest_begins_with_what_comes_after_the_start(
    url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put("before")
    stream = Stream(url, queue="jobs", startingOffsets="latest")

    first = stream.start()
    jobs.put("after")

    # Spark asks twice before the first batch.
    assert stream.start() == first
    assert values(stream.batch()) == ["after"]


def test_a_position_and_what_spark_shows_of_it_begin_after_it(
    url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put("read")
    seq = newest(jobs)
    shown = Stream(url, startingOffsets="latest").reader.reportLatestOffset()
    jobs.put("not read")

    by_seq = Stream(url, queue="jobs", startingOffsets=json.dumps({"0": seq}))
    as_shown = Stream(url, queue="jobs", startingOffsets=json.dumps(shown))

    assert values(by_seq.batch()) == values(as_shown.batch()) == ["not read"]


@pytest.mark.parametrize(
    ("offsets", "sentence"),
    [
        ('{"0": 1000000}', "position 1000000 is not there yet, the journal ends at"),
        ('{"1": 3}', 'this store has one shard, "0"'),
        ('{"store": "0123456789abcdef", "0": 1}', "of the store 0123456789abcdef"),
    ],
)
def test_a_position_that_the_journal_does_not_have_is_refused(
    url: str, jobs: PersistentQueue[Any], offsets: str, sentence: str
) -> None:
    jobs.put("a")

    with pytest.raises((ConfigurationError, JournalForeign), match=sentence):
        Stream(url, queue="jobs", startingOffsets=offsets).start()


def test_times_begin_with_what_came_later_and_end_with_what_came_before(
    url: str, jobs: PersistentQueue[Any]
) -> None:
    first, second, third = (jobs.put(value) for value in ("first", "second", "third"))

    stream = Stream(
        url,
        queue="jobs",
        startingTimestamp=between(first, second),
        endingTimestamp=between(second, third),
    )

    assert values(stream.batch()) == ["second"]
    assert stream.plan() is None


def between(one: QueueMessage[Any], other: QueueMessage[Any]) -> str:
    """A moment, with microseconds."""
    return datetime.fromtimestamp((one.created_at + other.created_at) / 2, UTC).isoformat()


def test_a_first_batch_is_replayed_from_where_it_began(
    url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put("before")
    stream = Stream(url, queue="jobs", startingOffsets="latest")
    stream.start()
    jobs.put_many(["a", "b"])
    planned = stream.plan()
    assert planned is not None
    jobs.put("later")

    # Spark has written down the end of the batch, not its start, and asks for that again.
    stream.killed()
    again = stream.start()

    assert again != planned[0]
    assert values(stream.rows(again, planned[1])) == ["a", "b"]


# --- how far it goes --------------------------------------------------------------------------
def test_without_news_there_is_no_batch(url: str, jobs: PersistentQueue[Any]) -> None:
    jobs.put("a")
    stream = Stream(url, queue="jobs")
    stream.batch()

    assert stream.plan() is None
    start = stream.start()
    assert stream.reader.latestOffset(start, ALL) is start


def test_a_batch_has_at_most_as_many_rows_as_asked(url: str, jobs: PersistentQueue[Any]) -> None:
    jobs.put_many(range(7))
    stream = Stream(url, queue="jobs", maxRowsPerTrigger="3")

    assert [values(stream.batch()) for _ in range(4)] == [[0, 1, 2], [3, 4, 5], [6], []]


def test_a_limit_that_spark_gives_is_stronger_than_the_option(
    url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put_many(range(7))
    stream = Stream(url, queue="jobs", maxRowsPerTrigger="3")

    assert values(stream.batch(ReadMaxRows(2))) == [0, 1]
    assert values(stream.batch(ALL)) == [2, 3, 4, 5, 6]


def test_what_is_not_its_own_makes_no_batch(
    url: str, store_path: Path, jobs: PersistentQueue[Any]
) -> None:
    jobs.put("a")
    stream = Stream(url, queue="jobs")
    stream.batch()

    with PersistentQueue[Any]("other", store_path=store_path) as other:
        other.put_many(range(10))
    jobs.ack(jobs.get_message())

    assert stream.plan() is None


def test_a_batch_has_its_rows_also_when_they_are_wanted_after_it_is_over(
    url: str, store_path: Path, jobs: PersistentQueue[Any]
) -> None:
    jobs.put("a")
    stream = Stream(url, queue="jobs")
    planned = stream.plan()
    assert planned is not None
    stream.batch()
    with PersistentQueue[Any]("other", store_path=store_path) as other:
        other.put_many(range(10))
    assert stream.plan() is None

    assert values(stream.rows(*planned)) == ["a"]


def test_a_stream_moves_past_what_is_not_its_own_now_and_then(
    url: str, jobs: PersistentQueue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put("a")
    stream = Stream(url, queue="jobs")
    stream.batch()
    jobs.ack(jobs.get_message())
    monkeypatch.setattr(stream_reader, "LONGEST_STAND", 0.0)

    planned = stream.plan()

    assert planned is not None
    assert planned[1]["0"] == newest(jobs)
    assert stream.rows(*planned) == []


def test_available_now_ends_at_what_was_there_when_it_started(
    url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put_many(["a", "b"])
    stream = Stream(url, queue="jobs", maxRowsPerTrigger="1")
    stream.reader.prepareForTriggerAvailableNow()
    jobs.put_many(["later"] * 5)

    batches = []
    while planned := stream.plan():
        batches.append(values(stream.rows(*planned)))
        stream.committed = planned[1]
        jobs.put("later")

    assert batches == [["a"], ["b"]]


def test_a_stream_that_has_reached_its_end_yields_nothing_more(
    url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put_many(["a", "b"])
    upto = newest(jobs)
    stream = Stream(url, queue="jobs", endingOffsets=json.dumps({"0": upto}))
    jobs.put("later")

    assert values(stream.batch()) == ["a", "b"]
    assert stream.plan() is None
    assert stream.reader.reportLatestOffset()["lag"] == 0


def test_earliest_is_no_end(url: str, jobs: PersistentQueue[Any]) -> None:
    jobs.put("a")

    with pytest.raises(ConfigurationError, match="endingOffsets"):
        Stream(url, queue="jobs", endingOffsets="earliest").plan()


def test_the_lag_is_the_rows_after_the_newest_batch(
    url: str, store_path: Path, jobs: PersistentQueue[Any]
) -> None:
    jobs.put_many(range(7))
    with PersistentQueue[Any]("other", store_path=store_path) as other:
        other.put_many(range(10))
    stream = Stream(url, queue="jobs", maxRowsPerTrigger="3")

    lags = []
    for _ in range(3):
        stream.batch()
        lags.append(stream.reader.reportLatestOffset()["lag"])

    assert lags == [4, 1, 0]


def test_a_position_that_spark_writes_down_survives_a_power_cut(
    url: str, jobs: PersistentQueue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put("a")
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    stream = Stream(url, queue="jobs")
    stream.start()
    synced.clear()

    assert stream.plan() is not None

    assert len(synced) == 1


def test_few_rows_are_one_task_and_more_are_as_many_as_asked(
    url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put_many(range(100))
    one, four = Stream(url, queue="jobs"), Stream(url, queue="jobs", minPartitions="4")

    for stream, tasks in ((one, 1), (four, 4)):
        planned = stream.plan()
        assert planned is not None
        assert len(stream.reader.partitions(*planned)) == tasks
        assert sorted(values(stream.rows(*planned))) == list(range(100))


# --- what is gone -----------------------------------------------------------------------------
def test_events_that_are_gone_before_they_were_read_are_an_error_that_names_them(
    url: str, short: PersistentQueue[Any]
) -> None:
    short.put("a")
    stream = Stream(url, queue="short", content="journal")
    stream.batch()
    write_much(short)

    planned = stream.plan()

    assert planned is not None
    with pytest.raises(JournalTrimmed, match=r"after position \d+ are gone .*'short' up to \d+"):
        stream.rows(*planned)


def test_a_named_position_whose_events_are_gone_is_a_loss(
    url: str, short: PersistentQueue[Any]
) -> None:
    write_much(short)

    with pytest.raises(JournalTrimmed, match="after position 1 are gone"):
        Stream(url, queue="short", startingOffsets='{"0": 1}').batch()


def test_events_that_go_while_a_task_reads_are_a_loss(
    url: str, short: PersistentQueue[Any]
) -> None:
    short.put_many(range(10))
    stream = Stream(url, queue="short", content="journal")
    planned = stream.plan()
    assert planned is not None
    [task] = stream.reader.partitions(*planned)

    write_much(short)

    with pytest.raises(JournalTrimmed, match="'short' up to"):
        list(stream.reader.read(task))


def test_events_that_go_after_they_were_read_are_no_loss(
    url: str, short: PersistentQueue[Any]
) -> None:
    short.put_many(range(10))
    stream = Stream(url, queue="short", content="journal")
    planned = stream.plan()
    assert planned is not None
    [task] = stream.reader.partitions(*planned)
    batches = stream.reader.read(task)
    first = next(batches)

    write_much(short)

    rows = first.num_rows + sum(batch.num_rows for batch in batches)
    assert rows == planned[1]["0"] - planned[0]["0"]


@pytest.mark.parametrize("content", ["messages", "dead_letters"])
def test_a_stream_says_when_messages_may_wait_that_it_does_not_have(
    url: str,
    jobs: PersistentQueue[Any],
    short: PersistentQueue[Any],
    caplog: pytest.LogCaptureFixture,
    content: str,
) -> None:
    jobs.put("a")
    write_much(short)

    Stream(url, queue="jobs", content=content).start()
    Stream(url, queue="short", content="journal").start()
    Stream(url, queue="short", content=content, startingOffsets="latest").start()
    assert "was trimmed" not in caplog.text

    stream = Stream(url, queue="jobs,short", content=content)
    stream.start()
    stream.start()

    assert caplog.text.count("the journal of queue 'short' was trimmed: messages that came") == 1


def test_without_fail_on_data_loss_the_gap_is_logged_and_the_stream_goes_on(
    url: str, short: PersistentQueue[Any], caplog: pytest.LogCaptureFixture
) -> None:
    short.put("a")
    stream = Stream(url, queue="short", content="journal", failOnDataLoss="false")
    last = stream.batch()[-1]
    write_much(short)

    rows = stream.batch()

    kept = short.journal(limit=100_000)
    assert len(rows) == len(kept) < TRIMS
    assert f"after position {last['seq']} are gone" in caplog.text
    assert caplog.text.count("'short' up to") == 1


def test_a_stream_that_begins_with_what_is_kept_misses_nothing(
    url: str, jobs: PersistentQueue[Any], short: PersistentQueue[Any]
) -> None:
    # The other queue's journal is trimmed beyond the oldest event of this one.
    jobs.put("old")
    write_much(short)
    kept = short.journal(limit=100_000)

    stream = Stream(url, queue="jobs,short", content="journal")
    rows = stream.batch()
    jobs.put("new")
    planned = stream.plan()

    assert rows[0]["queue"] == "jobs"
    assert len(rows) == len(kept) + len(jobs.journal(limit=100_000)) - 1
    assert planned is not None
    assert set(planned[1]) == {"store", "0"}  # what was gone at the start is behind it


def test_what_goes_between_the_start_and_a_replay_is_missed(
    url: str, jobs: PersistentQueue[Any], short: PersistentQueue[Any]
) -> None:
    jobs.put("old")
    write_much(short)
    stream = Stream(url, queue="jobs,short", content="journal")
    planned = stream.plan()
    assert planned is not None
    write_much(short)

    stream.killed()

    with pytest.raises(JournalTrimmed, match="'short' up to"):
        stream.rows(stream.start(), planned[1])


def test_events_that_were_not_its_own_may_go_unread(url: str, short: PersistentQueue[Any]) -> None:
    short.put("a")
    stream = Stream(url, queue="short", content="dead_letters")
    stream.start()
    for _ in range(3):
        write_much(short)
        assert stream.plan() is None
    short.dead_letter(short.get_message(), error=ValueError("no"))

    assert [row["last_error"] is not None for row in stream.batch()] == [True]


def test_a_restored_backup_is_an_error_that_says_so(
    url: str, store_path: Path, jobs: PersistentQueue[Any]
) -> None:
    jobs.put("a")
    stream = Stream(url, queue="jobs")
    stream.batch()
    copy = store_path.with_name("copy.sqlite3")
    with SQLiteQueueStore(store_path) as store:
        store.backup(copy)
    jobs.put("b")
    stream.reader.stop()
    jobs.close()
    copy.replace(store_path)

    with pytest.raises(JournalForeign, match="restored from a backup"):
        stream.killed().plan()
    with PersistentQueue[Any]("jobs", store_path=store_path) as restored:
        restored.put("c")
    with pytest.raises(JournalForeign, match="restored from a backup"):
        stream.killed().plan()


def test_a_stream_of_a_backup_needs_a_queue_that_has_opened_it(
    store_path: Path, jobs: PersistentQueue[Any]
) -> None:
    jobs.put("a")
    copy = store_path.with_name("copy.sqlite3")
    with SQLiteQueueStore(store_path) as store:
        store.backup(copy)

    with pytest.raises(ConfigurationError, match="nobody has opened"):
        Stream(f"sqlite:///{copy}", queue="jobs").start()
    with PersistentQueue[Any]("jobs", store_path=copy) as restored:
        restored.put("b")
    assert values(Stream(f"sqlite:///{copy}", queue="jobs").batch()) == ["a", "b"]


def test_an_older_copy_of_the_file_is_an_error_that_says_so(
    url: str, store_path: Path, jobs: PersistentQueue[Any]
) -> None:
    jobs.put("a")
    jobs.close()
    shutil.copy(store_path, store_path.with_name("copy.sqlite3"))
    with PersistentQueue[Any]("jobs", store_path=store_path) as more:
        more.put("b")
    stream = Stream(url, queue="jobs")
    stream.batch()
    stream.reader.stop()
    store_path.with_name("copy.sqlite3").replace(store_path)

    with pytest.raises(JournalForeign, match="older copy"):
        stream.killed().plan()


def test_a_checkpoint_of_another_source_is_refused(url: str, jobs: PersistentQueue[Any]) -> None:
    jobs.put("a")
    stream = Stream(url, queue="jobs")

    with pytest.raises(JournalForeign, match="another source"):
        stream.reader.latestOffset({"index": 3}, ALL)


# --- what a stream needs ----------------------------------------------------------------------
def test_a_store_or_queue_that_is_not_there_is_refused_and_not_made(
    url: str, store_path: Path, tmp_path: Path
) -> None:
    with pytest.raises(StoreMissing):
        Stream(url, queue="jobs", consumerGroup="archive").start()
    assert not store_path.exists()

    with PersistentQueue[Any]("jobs", store_path=store_path) as jobs:
        jobs.put("a")
        with pytest.raises(ConfigurationError, match="nobody"):
            Stream(url, queue="jobs,nobody").start()


def test_a_queue_without_a_journal_needs_a_consumer_group(url: str, store_path: Path) -> None:
    policy = Journal(enabled=False)
    with PersistentQueue[Any]("off", store_path=store_path, journal_policy=policy) as queue:
        queue.put("a")

        with pytest.raises(ConfigurationError, match="'off' keeps no journal"):
            Stream(url, queue="off").start()

        stream = Stream(url, queue="off", consumerGroup="archive", startingOffsets="latest")
        stream.start()
        write_much(queue)
        assert len(stream.batch()) == TRIMS


@pytest.mark.parametrize("mode", ["cursor", "hybrid"])
def test_messages_that_stand_in_a_topics_log_are_not_left_out_in_silence(
    url: str,
    store_path: Path,
    jobs: PersistentQueue[Any],
    caplog: pytest.LogCaptureFixture,
    mode: Literal["cursor", "hybrid"],
) -> None:
    jobs.put("a")
    with PersistentQueue[Any](
        "news",
        store_path=store_path,
        routing_policy=PublishSubscribeRouting(fanout_mode=mode),
        subscription_policy=StaticFanoutSubscriptions(["web"]),
    ) as news:
        news.put("b")

    for queue in ("news", "news.web", "jobs,news.web"):
        with pytest.raises(ConfigurationError, match=r"news.*content=journal.*lease=true"):
            Stream(url, queue=queue).start()
    assert "published" in [
        row["kind"] for row in Stream(url, queue="news", content="journal").batch()
    ]
    assert Stream(url, queue="news.web", content="dead_letters").plan() is None
    assert "topic's log" not in caplog.text

    assert values(Stream(url).batch()) == ["a"]
    assert "queue 'news', queue 'news.web' stand in a topic's log" in caplog.text


def test_the_messages_of_subscribers_that_have_copies_are_in_a_stream(
    url: str, store_path: Path
) -> None:
    with PersistentQueue[Any](
        "news",
        store_path=store_path,
        routing_policy=PublishSubscribeRouting(),
        subscription_policy=StaticFanoutSubscriptions(["web"]),
    ) as news:
        news.put("b")

    assert values(Stream(url, queue="news.web").batch()) == ["b"]


def test_values_that_may_be_null_later_are_said_once(
    url: str, store_path: Path, jobs: PersistentQueue[Any], caplog: pytest.LogCaptureFixture
) -> None:
    jobs.put("a")
    policy = Journal(payloads=True)
    with PersistentQueue[Any]("keeping", store_path=store_path, journal_policy=policy) as keeping:
        keeping.put("b")

    with caplog.at_level(logging.WARNING, "localqueue.spark"):
        Stream(url, queue="keeping").batch()
        Stream(url, queue="jobs", content="journal").batch()
        Stream(url, queue="jobs", columns="id,queue").batch()
        assert caplog.text == ""
        Stream(url, queue="jobs,keeping").batch()

    assert caplog.text.count("keeps no payloads") == 1
    assert "'jobs'" in caplog.text
    assert "'keeping'" not in caplog.text


# --- consumer groups --------------------------------------------------------------------------
def stands(queue: PersistentQueue[Any], group: str = "archive") -> int | None:
    found = [reader for reader in queue.readers() if reader.name == group]
    return int(found[0].position[16:], 16) if found else None


def test_the_journal_is_kept_for_a_consumer_group(url: str, short: PersistentQueue[Any]) -> None:
    short.put("a")
    stream = Stream(url, queue="short", consumerGroup="archive", content="journal")
    stream.batch()

    write_much(short)

    assert [row["kind"] for row in stream.batch()].count("enqueued") == TRIMS


def test_a_group_moves_when_the_sink_has_it_and_never_back(
    url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put("a")
    stream = Stream(url, queue="jobs", consumerGroup="archive")
    first = stream.start()
    assert stands(jobs) == first["0"]

    stream.batch()
    assert stands(jobs) == first["0"]  # only planned, as far as the reader can know

    assert stream.plan() is None
    assert stands(jobs) == newest(jobs)

    jobs.put("b")
    planned = stream.plan()
    assert planned is not None
    stream.reader.commit(planned[1])
    assert stands(jobs) == newest(jobs)

    stream.reader.commit(first)
    stream.killed().reader.commit(first)
    assert stands(jobs) == newest(jobs)


def test_a_query_that_ended_before_its_first_batch_begins_where_it_had_begun(
    url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put("before")
    stream = Stream(url, queue="jobs", consumerGroup="archive", startingOffsets="latest")
    stream.start()
    jobs.put("missed by no one")

    assert values(stream.killed().batch()) == ["missed by no one"]


def test_an_unused_group_follows_when_the_start_is_changed(
    url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put("before")
    stream = Stream(url, queue="jobs", consumerGroup="archive", startingOffsets="latest")
    stream.start()

    assert values(stream.killed(startingOffsets="earliest").batch()) == ["before"]


@pytest.mark.parametrize("offsets", ["earliest", "latest"])
def test_a_lost_checkpoint_is_an_error_that_says_how_to_go_on(
    url: str, jobs: PersistentQueue[Any], offsets: str
) -> None:
    jobs.put("read")
    stream = Stream(url, queue="jobs", consumerGroup="archive")
    stream.batch()
    stream.plan()
    stream.reader.stop()
    position = stands(jobs)
    jobs.put("not read")

    lost = Stream(url, queue="jobs", consumerGroup="archive", startingOffsets=offsets)
    with pytest.raises(ConfigurationError) as caught:
        lost.start()

    assert stands(jobs) == position
    assert f'startingOffsets {{"0": {position}}}' in str(caught.value)
    lost.killed(startingOffsets=json.dumps({"0": position}))
    assert values(lost.batch()) == ["not read"]


def test_a_place_that_was_named_once_is_no_answer_to_the_next_lost_checkpoint(
    url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put("a")
    options = {"queue": "jobs", "consumerGroup": "archive", "startingOffsets": '{"0": 0}'}
    stream = Stream(url, **options)
    stream.batch()
    stream.plan()
    stream.reader.stop()

    again = Stream(url, **options)
    with pytest.raises(ConfigurationError, match="has no checkpoint"):
        again.start()
    assert values(again.killed(startingOffsets='{"0": 1}').batch()) == ["a"]


def test_a_group_belongs_to_one_query_until_that_is_gone(
    url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put("a")
    stream = Stream(url, queue="jobs", consumerGroup="archive")
    stream.batch()
    stream.plan()
    position = stands(jobs)
    second = Stream(url, queue="jobs", consumerGroup="archive", startingOffsets='{"0": 0}')

    with pytest.raises(ConfigurationError, match=f"'archive' belongs .*process {os.getpid()}"):
        second.start()
    assert stands(jobs) == position
    assert values(Stream(url, queue="jobs", consumerGroup="other").batch()) == ["a"]

    stream.reader.stop()
    assert values(second.batch()) == ["a"]


def test_a_second_query_of_a_group_cannot_replay_a_batch_either(
    url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put("a")
    stream = Stream(url, queue="jobs", consumerGroup="archive")
    planned = stream.plan()
    assert planned is not None

    with pytest.raises(ConfigurationError, match="belongs to another query"):
        Stream(url, queue="jobs", consumerGroup="archive").rows(*planned)


def test_a_group_that_was_dropped_is_registered_again(url: str, jobs: PersistentQueue[Any]) -> None:
    jobs.put("a")
    stream = Stream(url, queue="jobs", consumerGroup="archive")
    stream.batch()
    jobs.drop_reader("archive")
    stream.plan()
    assert stands(jobs) == newest(jobs)

    jobs.put("b")
    stream.batch()
    jobs.drop_reader("archive")
    stream.killed().plan()
    assert stands(jobs) == newest(jobs)


def test_without_a_group_the_store_is_left_as_it_is(
    url: str, store_path: Path, jobs: PersistentQueue[Any]
) -> None:
    jobs.put("a")
    before = jobs.store.journal_end()
    stream = Stream(url, queue="jobs")
    stream.batch()
    stream.plan()

    assert jobs.readers() == []
    assert jobs.store.journal_end() == before
