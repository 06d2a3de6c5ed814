"""Replay: the archived messages of a window are put back, each of them once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Full
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from localqueue import (
    Journal,
    OrderingKeys,
    PersistentQueue,
    PriorityOrdering,
    PublishSubscribeRouting,
    StaticFanoutSubscriptions,
)
from localqueue.cli.app import run
from localqueue.errors import (
    ConfigurationError,
    InvalidArgument,
    JournalTrimmed,
    StoreMissing,
)
from localqueue.failpoints import listening
from localqueue.spark.pipeline.events import EVENTS
from localqueue.spark.pipeline.gaps import GAPS
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.parquet_files import write_table
from localqueue.spark.pipeline.pipeline import Pipeline
from localqueue.spark.pipeline.places import Feed, Place
from localqueue.spark.pipeline.replaying.replay import Replayed, replay
from localqueue.spark.pipeline.upkeep import drop_before
from localqueue.spark.write import portions
from tests.pipeline.archives import archive, now

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AGES_AGO, FAR_AHEAD = (datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2100))
Shown = pytest.CaptureFixture[str]


@pytest.fixture
def queue(url: str) -> Iterator[PersistentQueue[Any]]:
    with PersistentQueue[Any]("jobs", store=url, journal_policy=Journal(payloads=True)) as queue:
        yield queue


def a_little_later(queue: PersistentQueue[Any]) -> datetime:
    """A moment that is some milliseconds after all that was: bounds of files are rounded to one."""
    moment = now(queue) + timedelta(milliseconds=5)
    while now(queue) < moment:
        pass
    return moment


def work_off(queue: PersistentQueue[Any]) -> list[Any]:
    """The values of all messages that are there, in order; all are acknowledged."""
    messages = queue.get_messages(1000)
    queue.ack_many(messages)
    return [message.value for message in messages]


class Replaying:
    """Replays into the store of the test; what is not given is all the time there is."""

    def __init__(self, spark: SparkSession, url: str, lake: Lake) -> None:
        self._given: dict[str, Any] = {"spark": spark, "since": AGES_AGO, "until": FAR_AHEAD}
        self._url, self._lake = url, lake

    def __call__(self, **given: Any) -> Replayed:
        return replay(self._url, self._lake, **(self._given | given))


@pytest.fixture
def again(spark: SparkSession, url: str, lake: Lake) -> Replaying:
    return Replaying(spark, url, lake)


# --- each message once ----------------------------------------------------------------------------
def test_messages_of_the_window_come_back_in_their_order_and_say_what_they_were(
    queue: PersistentQueue[Any], lake: Lake, again: Replaying
) -> None:
    queue.put_many([{"n": -1}] * 3)
    since = now(queue)
    ids = [queue.put({"n": n, "text": "Jürgen"}).id for n in range(20)]
    until = now(queue)
    queue.put_many([{"n": 99}] * 3)
    assert len(work_off(queue)) == 26
    archive(lake, queue)

    done = again(since=since, until=until)

    assert (done.messages, done.counts.put, done.counts.already) == (20, 20, 0)
    assert done.queues == {"jobs": 20}
    assert done.behind == 0
    messages = queue.get_messages(100)
    assert [m.value for m in messages] == [{"n": n, "text": "Jürgen"} for n in range(20)]
    assert [m.headers["localqueue-replay-of"] for m in messages] == ids


def test_a_second_replay_puts_nothing_also_when_the_first_was_worked_off(
    queue: PersistentQueue[Any], lake: Lake, again: Replaying
) -> None:
    queue.put_many(range(10))
    until = now(queue)
    work_off(queue)
    archive(lake, queue)
    first = again(until=until)
    assert work_off(queue) == list(range(10))
    archive(lake, queue)

    second = again(until=until)

    assert (first.counts.put, second.counts.put, second.counts.already) == (10, 0, 10)
    assert queue.qsize() == 0
    assert again(until=until, name="once-more").counts.put == 10


def test_windows_that_overlap_put_each_message_once(
    queue: PersistentQueue[Any], lake: Lake, again: Replaying
) -> None:
    moments = [now(queue)]
    for part in range(3):
        queue.put_many(range(10 * part, 10 * part + 10))
        moments.append(now(queue))
    work_off(queue)
    archive(lake, queue)

    first = again(since=moments[0], until=moments[2])
    second = again(since=moments[1], until=moments[3])

    assert (first.counts.put, second.counts.put, second.counts.already) == (20, 10, 10)
    assert work_off(queue) == list(range(30))


def test_a_replay_that_ended_in_the_middle_goes_on(
    queue: PersistentQueue[Any], lake: Lake, again: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.put_many(range(30))
    until = now(queue)
    work_off(queue)
    archive(lake, queue)
    monkeypatch.setattr(portions, "LARGEST_BATCH", 7)

    def crash(point: str) -> None:
        if point == "replay.after-chunk" and queue.qsize() >= 14:
            raise InterruptedError("it ends here")

    with pytest.raises(InterruptedError), listening(crash):
        again(until=until)
    begun = work_off(queue)
    done = again(until=until)

    assert begun == list(range(14))
    assert (done.counts.put, done.counts.already) == (16, 14)
    assert work_off(queue) == list(range(14, 30))


# --- where to -------------------------------------------------------------------------------------
def test_they_can_be_put_into_another_queue(
    queue: PersistentQueue[Any], url: str, lake: Lake, again: Replaying
) -> None:
    other = PersistentQueue[Any]("mails", store=url, journal_policy=Journal(payloads=True))
    queue.put_many(range(5))
    other.put_many(range(5, 8))
    archive(lake, queue)

    done = again(queues=["jobs"], into="mails")

    assert done.queues == {"jobs": 5}
    assert work_off(other) == [5, 6, 7, 0, 1, 2, 3, 4]
    assert queue.qsize() == 5
    other.close()


def test_what_a_topic_handed_out_comes_back_by_the_topic_and_once(
    url: str, lake: Lake, again: Replaying
) -> None:
    topic = PersistentQueue[Any](
        "prices",
        store=url,
        journal_policy=Journal(payloads=True),
        routing_policy=PublishSubscribeRouting(),
        subscription_policy=StaticFanoutSubscriptions(["shop", "audit"]),
    )
    subscribers = [PersistentQueue[Any](f"prices.{name}", store=url) for name in ("shop", "audit")]
    topic.put_many(range(4))
    assert [work_off(each) for each in subscribers] == [list(range(4))] * 2
    archive(lake, topic)

    done = again()

    assert done.queues == {"prices": 4}
    assert [work_off(each) for each in subscribers] == [list(range(4))] * 2
    for each in (topic, *subscribers):
        each.close()


def test_what_came_to_a_store_that_is_lost_is_put_into_another_one(
    queue: PersistentQueue[Any], tmp_path: Path, lake: Lake, spark: SparkSession
) -> None:
    queue.put_many(range(5))
    archive(lake, queue)
    store = queue.store.journal_end()[:16]
    url = f"sqlite:///{tmp_path / 'new.sqlite3'}"
    fresh = PersistentQueue[Any]("jobs", store=url)
    fresh.put("first")
    until = now(queue)

    with pytest.raises(ConfigurationError, match=f"no events of this store; it has .*{store}"):
        replay(url, lake, since=AGES_AGO, until=until, spark=spark)
    replay(url, lake, since=AGES_AGO, until=until, stores=[store], spark=spark)

    assert work_off(fresh) == ["first", 0, 1, 2, 3, 4]
    fresh.close()


# --- how much -------------------------------------------------------------------------------------
def test_a_dry_run_counts_and_puts_nothing(
    queue: PersistentQueue[Any], lake: Lake, again: Replaying
) -> None:
    queue.put_many(range(5))
    work_off(queue)
    archive(lake, queue)
    until = now(queue)
    queue.put_many(range(3))
    before = queue.store.journal_end()

    done = again(until=until, dry_run=True)

    assert (done.messages, done.counts.put) == (5, 0)
    assert done.first_at is not None
    assert done.last_at is not None
    assert done.first_at <= done.last_at < until
    assert queue.store.journal_end() == before


def test_events_that_the_lake_does_not_have_yet_are_counted(
    queue: PersistentQueue[Any], lake: Lake, again: Replaying
) -> None:
    queue.put_many(range(5))
    archive(lake, queue)
    queue.put_many(range(3))

    assert again(dry_run=True).behind == 3


def test_files_outside_the_window_are_not_opened(
    queue: PersistentQueue[Any], lake: Lake, again: Replaying
) -> None:
    moments, files = [now(queue)], list[set[str]]()
    for part in range(3):
        queue.put_many(range(10 * part, 10 * part + 10))
        moments.append(a_little_later(queue))
        archive(lake, queue)
        files.append({path.name for path in Path(lake.location.uri, "events").glob("*.parquet")})
    for name in files[0] | (files[2] - files[1]):
        Path(lake.location.uri, "events", name).unlink()

    done = again(since=moments[1], until=moments[2])

    assert done.counts.put == 10
    assert work_off(queue)[30:] == list(range(10, 20))


def test_a_full_queue_is_waited_for_and_what_is_put_is_said(
    queue: PersistentQueue[Any], url: str, lake: Lake, again: Replaying
) -> None:
    queue.put_many(range(5))
    archive(lake, queue)
    small = PersistentQueue[Any]("small", store=url, maxsize=2)
    small.put("there")

    with pytest.raises(Full, match="1 messages are put; the same replay again puts the others"):
        again(queues=["jobs"], into="small", put_timeout=0.05)

    assert work_off(small) == ["there", 0]
    small.close()


# --- what can be wrong with a window --------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"since": FAR_AHEAD, "until": AGES_AGO}, "reversed or empty"),
        ({"since": datetime(2020, 1, 1)}, "has no time zone"),  # noqa: DTZ001
        ({"queues": ["jbos"]}, "no queue 'jbos' in .*; there are: jobs"),
        ({"into": "jbos"}, "no queue 'jbos' in .*; there are: jobs"),
        ({"until": AGES_AGO + timedelta(days=1)}, "no message came from 2020-01-01T00:00:00"),
        ({"name": "a/b"}, "cannot name a replay"),
        ({"remember": timedelta(0)}, "longer than nothing"),
        ({"stores": ["feedfeedfeedfeed"]}, "no events of the store feedfeedfeedfeed"),
    ],
)
def test_what_cannot_be_meant_is_said_and_nothing_is_put(
    queue: PersistentQueue[Any], lake: Lake, again: Replaying, given: dict[str, Any], said: str
) -> None:
    queue.put("one")
    archive(lake, queue)
    before = queue.store.journal_end()

    with pytest.raises((ConfigurationError, InvalidArgument), match=said):
        again(**given)

    assert queue.store.journal_end() == before


def test_a_store_or_a_lake_that_is_not_there_is_said_to_be_missing(
    queue: PersistentQueue[Any], lake: Lake, again: Replaying, tmp_path: Path, spark: SparkSession
) -> None:
    queue.put("one")
    with pytest.raises(StoreMissing, match="no table 'events'"):
        again()
    archive(lake, queue)
    missing = tmp_path / "missing.sqlite3"

    with pytest.raises(StoreMissing):
        replay(f"sqlite:///{missing}", lake, since=AGES_AGO, until=FAR_AHEAD, spark=spark)

    assert not missing.exists()


def test_a_queue_whose_journal_keeps_no_payloads_cannot_be_replayed(
    queue: PersistentQueue[Any], url: str, lake: Lake, again: Replaying
) -> None:
    plain = PersistentQueue[Any]("plain", store=url)
    plain.put_many(range(3))
    queue.put("one")
    archive(lake, queue)

    with pytest.raises(ConfigurationError, match=r"'plain' kept no payloads.*payloads=True"):
        again(queues=["plain"])
    done = again()

    assert done.queues == {"jobs": 1}
    assert done.without_payload == {"plain": 3}
    assert plain.qsize() == 3
    plain.close()


def test_messages_that_have_no_payload_are_left_out_only_when_that_is_wanted(
    url: str, lake: Lake, again: Replaying
) -> None:
    with PersistentQueue[Any]("jobs", store=url) as before:
        before.put_many(["a", "b"])
    queue = PersistentQueue[Any]("jobs", store=url, journal_policy=Journal(payloads=True))
    queue.put("c")
    archive(lake, queue)

    with pytest.raises(JournalTrimmed, match="no payload of 2 of the 3 messages of 'jobs'"):
        again()
    done = again(missing_ok=True)

    assert done.without_payload == {"jobs": 2}
    assert work_off(queue) == ["a", "b", "c", "c"]
    queue.close()


def test_a_gap_in_the_window_is_an_error_and_one_outside_is_none(
    queue: PersistentQueue[Any], lake: Lake, again: Replaying
) -> None:
    start = now(queue)
    queue.put("before")
    before = now(queue)
    queue.put("last")
    archive(lake, queue)
    lost_after = _seq(queue)
    queue.put("lost")
    lost_upto, after = _seq(queue), now(queue)
    queue.put("after")
    later = now(queue)
    queue.put("much later")
    archive(lake, queue)
    _note_gap(lake, queue, lost_after, lost_upto)

    with pytest.raises(JournalTrimmed, match=r"not have all events of 'jobs'.*trimmed before"):
        again()
    assert again(since=start, until=before, dry_run=True).messages == 1
    assert again(missing_ok=True, dry_run=True).messages == 5
    with pytest.raises(JournalTrimmed):
        again(since=before, until=after)
    assert again(since=later, dry_run=True).messages == 1


def _seq(queue: PersistentQueue[Any]) -> int:
    return int(queue.store.journal_end()[16:], 16)


def _note_gap(lake: Lake, queue: PersistentQueue[Any], after: int, upto: int) -> None:
    store = queue.store.journal_end()[:16]
    row = {"store": store, "shard": "0", "queue": "jobs", "after": after, "upto": upto}
    gaps = lake.create(GAPS)
    rows = pa.Table.from_pylist([row | {"noticed_at": now(queue)}], schema=GAPS.schema)
    file = write_table(gaps.location, rows, GAPS.statistics)
    assert gaps.append([file], Feed(), {Place(store, "0"): upto})


def test_what_the_tables_retention_has_let_go_is_missed(
    queue: PersistentQueue[Any], lake: Lake, again: Replaying
) -> None:
    queue.put("old")
    archive(lake, queue)
    later = a_little_later(queue)
    queue.put("new")
    then = now(queue)
    queue.put("newer")
    archive(lake, queue)
    events = lake.table("events")
    assert events is not None
    assert drop_before(events, EVENTS, later) == 1

    with pytest.raises(JournalTrimmed, match="let go by its retention"):
        again()

    assert again(since=then, dry_run=True).messages == 1


def test_what_a_replay_put_is_not_taken_for_new_messages(
    queue: PersistentQueue[Any], lake: Lake, again: Replaying
) -> None:
    queue.put_many(range(3))
    archive(lake, queue)
    again()
    archive(lake, queue)
    queue.put("later")
    archive(lake, queue)

    done = again()

    assert (done.messages, done.counts.put, done.counts.already) == (4, 1, 3)
    assert again(name="once-more").counts.put == 4


def test_headers_priority_codec_and_ordering_key_come_back(
    url: str, lake: Lake, again: Replaying
) -> None:
    kept = Journal(payloads=True)
    ranked = PersistentQueue[Any](
        "ranked", store=url, journal_policy=kept, ordering_policy=PriorityOrdering()
    )
    keyed = PersistentQueue[Any](
        "keyed", store=url, journal_policy=kept, ordering_policy=OrderingKeys()
    )
    ranked.put("low", headers={"tenant": "a"})
    ranked.put("high", priority=5)
    keyed.put("x", ordering_key="k")
    archive(lake, ranked)
    for each in (ranked, keyed):
        work_off(each)

    again()

    high, low = ranked.get_messages(2)
    assert (high.value, high.priority, low.value) == ("high", 5, "low")
    assert low.headers["tenant"] == "a"
    assert [message.ordering_key for message in keyed.get_messages(2)] == ["k"]
    assert again(queues=["ranked"], into="keyed", name="elsewhere").counts.put == 2
    for each in (ranked, keyed):
        each.close()


# --- the command ----------------------------------------------------------------------------------
def test_the_command_shows_counts_puts_and_tells_of_what_was_put_before(
    spark: SparkSession, queue: PersistentQueue[Any], url: str, lake: Lake, capsys: Shown
) -> None:
    """Over a lake that a pipeline has filled."""
    queue.put_many(range(12))
    until = now(queue).isoformat()
    work_off(queue)
    where = lake.location.uri
    Pipeline(url, lake, spark=spark).run()
    command = ["pipeline", "replay", url, where, "--from", "1h", "--to", until]

    assert run([*command, "--dry-run"]) == 0
    assert capsys.readouterr().out == "12 messages in the window: jobs 12\n"
    assert queue.qsize() == 0
    assert run([*command, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["put"], done["already"], done["messages"]) == (12, 0, 12)
    assert work_off(queue) == list(range(12))
    assert run(command) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^0 put, 12 were put before, in [\d.]+ s$", shown, re.MULTILINE)


def test_errors_of_the_command_are_one_line_and_come_before_spark(
    queue: PersistentQueue[Any], url: str, lake: Lake, capsys: Shown
) -> None:
    queue.put("one")
    archive(lake, queue)
    command = ["pipeline", "replay", url, lake.location.uri]

    wrong = {
        "reversed or empty": ["--from", "1h", "--to", "2h"],
        "is no time": ["--from", "noon", "--to", "1h"],
        "no queue 'jbos'": ["--from", "2h", "--to", "1h", "--queue", "jbos"],
        "cannot name a replay": ["--from", "2h", "--to", "1h", "--name", "a b"],
        "Missing option '--to'": ["--from", "2h"],
    }
    for said, arguments in wrong.items():
        assert run([*command, *arguments]) == 2
        shown = capsys.readouterr()
        assert said in shown.err
        assert shown.err.count("\n") == 1
