"""What events become: rows of silver, of quarantine, each once, in every table."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from localqueue.failpoints import listening
from localqueue.spark.pipeline.attempts import ended_leases
from localqueue.spark.pipeline.events import EVENTS
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.messages import ended_lives
from localqueue.spark.pipeline.places import Feed, Place
from localqueue.spark.pipeline.quarantine import OfSound, judged, unsound
from localqueue.spark.pipeline.read_table import read_table
from localqueue.spark.pipeline.tables import SILVER
from localqueue.spark.pipeline.upkeep import MANY
from localqueue.spark.pipeline.writing import LakeWriter
from tests.pipeline.journals import HERE, START, STORE, ended, event, journal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("events", "attempts", "messages")


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    """As Spark hands them to a task."""
    return pa.RecordBatch.from_pylist(list(rows))


def events(*rows: dict[str, Any]) -> pa.RecordBatch:
    return OfSound()(judged(batch(*rows)))


# --- silver ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "entered", "is_attempt", "is_life"),
    [
        ("acked", None, True, True),
        ("released", "ready", True, False),
        ("released", "delayed", True, False),
        ("lease_expired", "ready", True, False),
        ("lease_expired", "dead", True, True),
        ("dead_lettered", "dead", True, True),
        ("cancelled", None, True, True),
        ("purged", None, True, True),
        ("extended", "inflight", False, False),
        ("cancel_asked", "inflight", False, False),
    ],
)
def test_a_lease_ends_when_the_message_leaves_and_a_life_when_it_is_gone_or_dead(
    kind: str, entered: str | None, is_attempt: bool, is_life: bool
) -> None:
    rows = events(ended(9, kind, to_state=entered))

    assert ended_leases(rows)["outcome"].to_pylist() == [kind] * is_attempt
    assert ended_lives(rows)["outcome"].to_pylist() == [kind] * is_life


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        (event(1, "expired", from_state="ready"), "expired"),
        (event(1, "expired", from_state="delayed", to_state="dead"), "expired"),
        (event(1, "cancelled", from_state="held"), "cancelled"),
        (event(1, "purged", from_state="ready", n=7), "purged"),
        (event(1, "quarantined", from_state="ready", to_state="dead"), "quarantined"),
        (event(1, "dropped", from_state="ready"), "dropped"),
        (event(1, "dropped"), "dropped"),
        (event(1, "enqueued", to_state="dead"), "dead_lettered"),
        (event(1, "enqueued", to_state="ready"), None),
        (event(1, "leased", from_state="ready", to_state="inflight"), None),
        (event(1, "promoted", from_state="delayed", to_state="ready", n=3), None),
        (event(1, "requeued", from_state="dead", to_state="ready"), None),
        (event(1, "pruned", from_state="dead"), None),
        (event(1, "purged", from_state="dead", n=2), None),
        (event(1, "purged", n=0), None),
        (event(1, "counted"), None),
        (event(1, "configured"), None),
    ],
)
def test_a_life_that_never_had_a_lease_ends_too(row: dict[str, Any], outcome: str | None) -> None:
    rows = events(row)

    assert ended_leases(rows).num_rows == 0
    lives = ended_lives(rows).to_pylist()
    assert [life["outcome"] for life in lives] == ([] if outcome is None else [outcome])
    assert [life["n"] for life in lives] == ([] if outcome is None else [row["n"]])


def test_a_life_carries_its_times_and_its_error() -> None:
    error = {"error_type": "ValueError", "error_text": "no", "fingerprint": "f1"}
    rows = events(ended(100, "dead_lettered", to_state="dead", attempt=3, **error))

    [life] = ended_lives(rows).to_pylist()

    assert life["lived"] == 5.0
    assert (life["waited"], life["ran"], life["attempts"], life["worker"]) == (3.0, 2.0, 3, "w1")
    assert life["ended_at"] - life["enqueued_at"] == timedelta(seconds=5)
    assert {name: life[name] for name in error} == error
    assert (life["store"], life["shard"], life["seq"]) == (STORE, "0", 100)


# --- quarantine -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"kind": None}, "its kind is unknown"),
        ({"kind": "exploded"}, "its kind is unknown"),
        ({"at": None}, "its time is missing"),
        ({"at": datetime(1970, 1, 1, tzinfo=UTC)}, "its time cannot be"),
        ({"at": datetime(2200, 1, 1, tzinfo=UTC)}, "its time cannot be"),
        ({"queue": None}, "its queue is unknown"),
        ({"to_state": "limbo"}, "it enters an unknown state"),
        ({"by": None}, "its actor is unknown"),
        ({"n": None}, "its number of messages is missing"),
        ({"position": "short"}, "its position is none"),
    ],
)
def test_an_event_that_does_not_decode_is_quarantined_with_its_reason(
    wrong: dict[str, Any], reason: str
) -> None:
    rows = judged(batch(event(1), ended(2) | wrong, event(3)))

    [row] = unsound(rows).to_pylist()

    assert (row["seq"], row["reason"]) == (2, reason)
    assert '"waited": 3.0' in row["raw"]
    assert OfSound()(rows)["seq"].to_pylist() == [1, 3]
    assert OfSound(ended_leases)(rows).num_rows == 0


def test_an_event_with_a_broken_payload_is_kept_without_it() -> None:
    rows = judged(batch(event(1, value='{"a": 1}'), event(2, value='{"a": ', detail="{}")))

    [row] = unsound(rows).to_pylist()

    assert (row["seq"], row["reason"], row["raw"]) == (2, "its value is not JSON", '{"a": ')
    assert OfSound()(rows)["value"].to_pylist() == ['{"a": 1}', None]
    assert OfSound()(rows)["detail"].to_pylist() == [None, "{}"]


# --- batches --------------------------------------------------------------------------------------
def writer(spark: SparkSession, lake: Lake) -> LakeWriter:
    made = LakeWriter(spark, lake, Feed(), SILVER, ())
    made.expect(HERE)
    return made


def seqs(lake: Lake, table: str) -> list[int]:
    rows = DeltaTable(f"{lake.location.uri}/{table}").to_pyarrow_table(columns=["seq"])
    return sorted(rows["seq"].to_pylist())


def some_lives(first: int, lives: int) -> Iterator[dict[str, Any]]:
    for start in range(first, first + 3 * lives, 3):
        yield event(start)
        yield event(start + 1, "leased", from_state="ready", to_state="inflight")
        yield ended(start + 2)


def ends(first: int, lives: int) -> list[int]:
    return list(range(first + 2, first + 3 * lives, 3))


def test_a_batch_comes_to_every_table(spark: SparkSession, lake: Lake) -> None:
    rows, added = writer(spark, lake).write(journal(spark, some_lives(1, 10)))

    assert rows == 30
    assert added == {"quarantine": 0, "events": 30, "attempts": 10, "messages": 10}
    assert seqs(lake, "events") == list(range(1, 31))
    assert seqs(lake, "attempts") == seqs(lake, "messages") == ends(1, 10)
    table = lake.table("events")
    assert table is not None
    first = read_table(spark, table, ["at", "kind"], "seq = 1").collect()[0]
    assert (first.at.timestamp(), first.kind) == (START.timestamp() + 1, "enqueued")


def test_a_batch_that_comes_again_adds_nothing(spark: SparkSession, lake: Lake) -> None:
    writer(spark, lake).write(journal(spark, some_lives(1, 10)))

    # Another process, which has not been told whose journal it is.
    again = LakeWriter(spark, lake, Feed(), SILVER, ())
    _, added = again.write(journal(spark, some_lives(1, 12)))

    assert added == {"quarantine": 0, "events": 6, "attempts": 2, "messages": 2}
    assert seqs(lake, "events") == list(range(1, 37))
    assert seqs(lake, "attempts") == seqs(lake, "messages") == ends(1, 12)


class Crash(Exception):
    """The driver ends here."""


CRASHES = [(f"{when}-{table}", True) for table in TABLES for when in ("before", "after")]
# Without the checkpoint the batch does not come again: the others take it from events.
CRASHES += [("after-events", False), ("after-attempts", False)]


@pytest.mark.parametrize(("point", "replayed"), CRASHES)
def test_a_crash_between_any_two_tables_is_repaired(
    spark: SparkSession, lake: Lake, point: str, replayed: bool
) -> None:
    writer(spark, lake).write(journal(spark, some_lives(1, 3)))
    crashing = writer(spark, lake)

    def crash(reached: str) -> None:
        if reached == f"pipeline.{point}":
            raise Crash

    with pytest.raises(Crash), listening(crash):
        crashing.write(journal(spark, some_lives(10, 3)))
    repaired = writer(spark, lake)
    start = 10 if replayed else repaired.expect(HERE) + 1
    repaired.catch_up()
    repaired.write(journal(spark, (row for row in some_lives(10, 5) if row["seq"] >= start)))

    assert seqs(lake, "events") == list(range(1, 25))
    assert seqs(lake, "attempts") == seqs(lake, "messages") == ends(1, 8)


def test_a_table_that_was_deleted_is_filled_again(spark: SparkSession, lake: Lake) -> None:
    writer(spark, lake).write(journal(spark, some_lives(1, 10)))
    shutil.rmtree((lake.location / "messages").uri)

    writer(spark, lake).catch_up()

    assert seqs(lake, "messages") == ends(1, 10)
    assert seqs(lake, "attempts") == ends(1, 10)


def test_a_restored_backup_adds_only_what_came_after_it(spark: SparkSession, lake: Lake) -> None:
    """Its positions have other digits from the restore on, at seqs that the lake has seen."""
    writer(spark, lake).write(journal(spark, some_lives(1, 10)))
    new = "fedcba9876543210"
    restored = [*some_lives(1, 5), event(16, store=new), event(17, store=new)]

    _, added = writer(spark, lake).write(journal(spark, restored))

    assert added["events"] == 2
    table = lake.table("events")
    assert table is not None
    assert table.positions(Feed(), [HERE, Place(new, "0")]) == {HERE: 30, Place(new, "0"): 17}


def test_two_writers_bring_every_event_once(spark: SparkSession, lake: Lake) -> None:
    """The second reads its positions before the first one commits."""
    first, second = writer(spark, lake), writer(spark, lake)
    done: list[dict[str, int]] = []

    def interfere(reached: str) -> None:
        if reached == "pipeline.before-events" and not done:
            done.append({})
            done[0] = first.write(journal(spark, some_lives(1, 4)))[1]

    with listening(interfere):
        _, added = second.write(journal(spark, some_lives(1, 6)))

    assert (done[0]["events"], added["events"]) == (12, 6)
    assert seqs(lake, "events") == list(range(1, 19))
    assert seqs(lake, "attempts") == seqs(lake, "messages") == ends(1, 6)


def test_many_batches_leave_few_files(spark: SparkSession, lake: Lake) -> None:
    bringing = writer(spark, lake)
    rows = journal(spark, some_lives(1, MANY + 1)).coalesce(1).cache()
    for n in range(MANY + 1):
        bringing.write(rows.where(f"seq > {3 * n} and seq <= {3 * n + 3}"))

    table = lake.table("events")
    assert table is not None
    assert len(table.files()) == 2
    assert seqs(lake, "events") == list(range(1, 3 * MANY + 4))


def test_files_that_spark_would_take_for_a_pattern_are_read_all_the_same(
    spark: SparkSession, lake: Lake
) -> None:
    odd = Lake(f"{lake.location.uri} [odd]")
    writer(spark, odd).write(journal(spark, some_lives(1, 2)))
    table = odd.table("events")
    assert table is not None

    rows = read_table(spark, table, ["seq", "at"], "seq > 4").collect()

    assert sorted(row.seq for row in rows) == [5, 6]
    assert EVENTS.schema.names == table.schema.names
