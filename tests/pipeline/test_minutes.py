"""Gold ``minutes`` says what a reading of the same events one by one says."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from localqueue import PersistentQueue
from localqueue.errors import ConfigurationError
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.minutes import KINDS, MINUTES
from localqueue.spark.pipeline.pipeline import Pipeline
from localqueue.spark.pipeline.places import Feed, Place
from localqueue.spark.pipeline.tables import gold
from localqueue.spark.pipeline.writing import LakeWriter
from tests.pipeline.here import batch, writer_here
from tests.pipeline.journals import HERE, START, STORE, event, journal
from tests.pipeline.queue_model import STATES, Journal, Row, expected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTS = ("events", *KINDS, "attempts", "failures", "retries", "died", "lives")
Rows = dict[tuple[str, str, datetime], Row]


def writer(
    spark: SparkSession, lake: Lake, slo: dict[str, float] | None = None, *others: Place
) -> LakeWriter:
    made = LakeWriter(spark, lake, Feed(), (), gold(slo)[:1])
    for place in (HERE, *others):
        made.expect(place)
    return made


def minutes(lake: Lake) -> Rows:
    """By store, queue and minute; two rows for one key are a failure."""
    rows = DeltaTable(f"{lake.location.uri}/minutes").to_pyarrow_table().to_pylist()
    found = {(row["store"], row["queue"], row["minute"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def levels(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in (*STATES, "backlog")}


def same(found: Rows, wanted: Rows) -> None:
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        one = found[key]
        assert {c: one[c] for c in COUNTS} == {c: row.get(c, 0) for c in COUNTS}, key
        assert levels(one) == levels(row), key
        assert one["workers"] == len(row["names"])
        assert one["busy"] == pytest.approx(sum(row["runs"]))
        for what, values in (("wait", row["waits"]), ("run", row["runs"])):
            for rank in (50, 95, 99):
                assert one[f"{what}_p{rank}"] == _quantile(values, rank), (key, what, rank)


def _quantile(values: Sequence[float], rank: int) -> float | None:
    """The smallest value that so many percent are not above. Sketches keep few values exactly."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * rank / 100) - 1)] if ordered else None


def test_batches_of_any_size_add_up_to_what_happened(spark: SparkSession, lake: Lake) -> None:
    made = Journal()
    for queue in ("jobs", "mails"):
        made.make(queue)
    for _ in range(3):
        made.work("jobs", 70)
        made.count("jobs")
        made.work("mails", 30)
        made.count("mails")
        made.work("jobs", 25)
    bringing = writer(spark, lake)

    for first, last in ((0, 3), (3, 120), (120, 121), (121, len(made.rows))):
        bringing.write(journal(spark, made.rows[first:last]))

    same(minutes(lake), expected(made.rows))


def test_a_queue_goes_on_from_where_it_was_however_long_ago(
    spark: SparkSession, lake: Lake
) -> None:
    """The row with its level is in a file that is older than everything that is merged."""
    made = Journal()
    made.make("seldom")
    made.work("seldom", 10)
    bringing = writer(spark, lake)
    bringing.write(journal(spark, made.rows))
    came = len(made.rows)
    made.make("often")
    for _ in range(2):
        made.now += timedelta(hours=1)
        made.work("often", 10)
        bringing.write(journal(spark, made.rows[came:]))
        came = len(made.rows)
    # On the same day: files of a day that is over are joined.
    made.now += timedelta(hours=6)
    made.work("seldom", 5)
    table = lake.table("minutes")
    assert table is not None
    before = table.files()

    bringing.write(journal(spark, made.rows[came:]))

    same(minutes(lake), expected(made.rows))
    table.refresh()
    assert set(before) & set(table.files()), "files without a newest row are left alone"


def test_events_of_an_older_minute_are_added_where_they_belong(
    spark: SparkSession, lake: Lake
) -> None:
    """The clock may have been set back before a boot; and stores do not wait for each other."""
    other = Place("fedcba9876543210", "0")
    made, others = Journal(), Journal(other.store, seed=3)
    for each in (made, others):
        each.make("jobs")
        each.work("jobs", 5, every=30)
    made.now += timedelta(minutes=9)
    made.work("jobs", 9, every=20)
    made.now -= timedelta(minutes=7)
    late = len(made.rows)
    made.work("jobs", 9, every=40)
    bringing = writer(spark, lake, None, other)

    bringing.write(journal(spark, made.rows[:late]))
    bringing.write(journal(spark, [*made.rows[late:], *others.rows]))

    same(minutes(lake), expected([*made.rows, *others.rows]))


def test_levels_are_unknown_until_the_store_has_told_them(spark: SparkSession, lake: Lake) -> None:
    """The beginning of this journal was trimmed."""
    made = Journal()
    made.make("jobs")
    made.work("jobs", 100)
    trimmed = len(made.rows)
    made.work("jobs", 30)
    untold = len(made.rows)
    made.work("jobs", 30)
    made.count("jobs")
    made.work("jobs", 40)
    bringing = writer(spark, lake)

    bringing.write(journal(spark, made.rows[trimmed:untold]))
    assert {level for row in minutes(lake).values() for level in levels(row).values()} == {None}

    bringing.write(journal(spark, made.rows[untold:]))
    wanted = expected(made.rows)
    reached = {key: row for key, row in minutes(lake).items() if row["last_seq"] > untold}
    assert len(reached) >= 2
    for key, row in reached.items():
        assert levels(row) == levels(wanted[key])


def test_a_batch_may_end_between_what_the_store_tells_of_two_queues(lake: Lake) -> None:
    made, queues, ends = Journal(), ("jobs", "mails"), []
    for queue in queues:
        made.make(queue)
    for _ in range(3):
        for queue in queues:
            made.work(queue, 90)
        made.count("jobs")
        ends.append(len(made.rows))
        made.count("mails")
    bringing = writer_here(lake)

    for first, last in pairwise([0, *ends, len(made.rows)]):
        bringing.write(batch(made.rows[first:last]))

    same(minutes(lake), expected(made.rows))


def test_levels_are_the_same_when_all_events_are_summed_up_again(
    spark: SparkSession, lake: Lake
) -> None:
    """Spark gives the first and the third file to one task, because of their sizes."""
    rows = [event(seq, at=START + timedelta(seconds=seq / 20)) for seq in range(100, 400)]
    told = json.dumps(dict.fromkeys(STATES, 0) | {"ready": 1000})
    rows[150] |= {"kind": "counted", "to_state": None, "by": "sweep", "detail": told}
    bringing = writer_here(lake)
    for first, last in pairwise([0, 145, 155, 300]):
        bringing.write(batch(rows[first:last]))
    known = minutes(lake)
    assert known[STORE, "jobs", START]["ready"] == 1149
    shutil.rmtree((lake.location / "minutes").uri)

    writer(spark, lake).catch_up()

    same_levels = {key: levels(row) for key, row in minutes(lake).items()}
    assert same_levels == {key: levels(row) for key, row in known.items()}


def test_a_late_event_of_one_store_leaves_the_files_of_others_alone(lake: Lake) -> None:
    other = Place("fedcba9876543210", "0")
    bringing = writer_here(lake, HERE, other)
    bringing.write(batch([event(1), event(100)], [event(1, store=other.store)]))
    table = lake.table(MINUTES.name)
    assert table is not None
    theirs = {*table.files(f"store = '{other.store}'")} - {*table.files(f"store = '{STORE}'")}

    bringing.write(batch([event(101, at=START - timedelta(days=9))]))
    table.refresh()
    between = {*table.files(f"store = '{other.store}'")} - {*table.files(f"store = '{STORE}'")}
    bringing.write(batch([event(102, at=START - timedelta(days=8))]))
    table.refresh()

    assert (len(theirs), len(between)) == (0, 1)
    assert between < {*table.files()}
    assert len(minutes(lake)) == 5


def test_a_queue_whose_beginning_was_trimmed_does_not_begin_with_nothing(
    spark: SparkSession, lake: Lake
) -> None:
    """What is there first configures the queue, but need not have made it."""
    happened = Journal()
    happened.make("jobs")
    happened.work("jobs", 5)
    steps = gold(trimmed=[(STORE, "jobs")])[:1]
    trimmed = LakeWriter(spark, lake, Feed(), (), steps)
    trimmed.expect(HERE)

    trimmed.write(journal(spark, happened.rows))

    for row in minutes(lake).values():
        assert set(levels(row).values()) == {None}


def test_what_the_store_tells_puts_levels_right_after_events_were_lost(
    spark: SparkSession, lake: Lake
) -> None:
    made = Journal()
    made.make("jobs")
    made.work("jobs", 50)
    first = len(made.rows)
    made.work("jobs", 50)
    lost = len(made.rows)
    made.work("jobs", 70)
    made.count("jobs")
    made.work("jobs", 70)
    bringing = writer(spark, lake)

    bringing.write(journal(spark, made.rows[:first]))
    bringing.write(journal(spark, made.rows[lost:]))

    wanted, found = expected(made.rows), minutes(lake)
    came_after = [key for key in found if found[key]["first_seq"] > lost]
    assert len(came_after) >= 2
    for key in came_after:
        assert levels(found[key]) == levels(wanted[key]), key


def test_a_life_meets_the_limit_of_its_queue_or_misses_it(spark: SparkSession, lake: Lake) -> None:
    def ends(seq: int, waited: float | None, **columns: Any) -> Row:
        leased = {"kind": "acked", "from_state": "inflight", "to_state": None, "waited": waited}
        return event(seq) | leased | columns

    rows = [
        ends(1, 2.0),
        ends(2, 2.1),
        ends(3, 9.0, kind="dead_lettered", to_state="dead"),
        ends(4, 9.0, kind="released", to_state="ready"),
        ends(5, None, kind="expired", from_state="ready"),
        ends(6, None, kind="cancelled", from_state="ready"),
        ends(7, None, kind="purged", from_state="delayed", n=4, message_id=None),
        ends(8, None, kind="dropped", from_state=None),
        ends(9, 9.0, queue="mails"),
    ]

    writer(spark, lake, {"jobs": 2.0}).write(journal(spark, rows))

    found = minutes(lake)
    jobs, mails = found[STORE, "jobs", START], found[STORE, "mails", START]
    assert (jobs["slo_met"], jobs["slo_missed"], jobs["slo_limit"]) == (1, 4, 2.0)
    assert (mails["slo_met"], mails["slo_missed"], mails["slo_limit"]) == (0, 0, None)
    assert jobs["lives"] == 10


def test_retention_keeps_the_newest_row_of_every_queue(spark: SparkSession, lake: Lake) -> None:
    made = Journal()
    made.make("jobs")
    made.work("jobs", 200)
    bringing = writer(spark, lake)
    bringing.write(journal(spark, made.rows))

    bringing.look_after({"minutes": timedelta(days=1)})

    found = minutes(lake)
    key = max(expected(made.rows))
    assert set(found) == {key}
    assert levels(found[key]) == levels(expected(made.rows)[key])


def test_minutes_agree_with_the_store_after_every_run(
    spark: SparkSession, url: str, lake: Lake
) -> None:
    jobs: PersistentQueue[Any] = PersistentQueue("jobs", store=url)
    mails: PersistentQueue[Any] = PersistentQueue("mails", store=url)
    pipeline = Pipeline(url, lake, spark=spark, rows_per_batch=1500)
    work(jobs, 900)
    work(mails, 40)

    pipeline.run()
    agree(lake, jobs, mails)

    # It counts on from its table, whatever became of the checkpoint; and a purge is in it.
    work(mails, 60)
    jobs.purge()
    work(jobs, 30)
    shutil.rmtree(Path(lake.location.uri, "_checkpoints"))
    pipeline.run()
    agree(lake, jobs, mails)


def work(queue: PersistentQueue[Any], messages: int) -> None:
    """Each third is acked, each third dies, and each third is put back, for now or for later."""
    queue.put_many([{"n": n} for n in range(messages)])
    for n, message in enumerate(queue.get_messages(messages * 3 // 4, leased_by=f"w{messages}")):
        if n % 3 == 0:
            queue.ack(message)
        elif n % 3 == 1:
            queue.dead_letter(message, error=ValueError(f"no {n}"))
        else:
            queue.release(message, delay=1000.0 if n % 2 else 0.0)
    queue.get_messages(3, leased_by="w1")


def agree(lake: Lake, *queues: PersistentQueue[Any]) -> None:
    events = DeltaTable(f"{lake.location.uri}/events").to_pyarrow_table().to_pylist()
    for queue in queues:
        stats = queue.stats()
        here = [row for row in minutes(lake).values() if row["queue"] == queue.name]
        newest = max(here, key=lambda row: row["minute"])
        assert newest["ready"] == stats.ready
        assert newest["delayed"] + newest["held"] == stats.delayed
        assert newest["inflight"] == stats.inflight
        assert newest["dead"] == stats.dead
        for kind in KINDS:
            n = sum(e["n"] for e in events if (e["kind"], e["queue"]) == (kind, queue.name))
            assert sum(row[kind] for row in here) == n


def test_a_limit_that_is_no_time_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'jobs' is 0; it is a number of seconds"):
        gold({"jobs": 0})


def test_the_columns_of_kinds_are_kinds_of_events() -> None:
    from localqueue.stores.sqlite.states import KINDS as KNOWN

    assert set(KINDS) <= set(KNOWN)
    assert set(KINDS) <= set(MINUTES.schema.names)
