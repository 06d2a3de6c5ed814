"""A pipeline over a real store: whatever happens to it, the lake has every event once."""

from __future__ import annotations

import json
import shutil
import sqlite3
import uuid
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from localqueue import Journal, PersistentQueue
from localqueue.errors import ConfigurationError, JournalForeign, JournalTrimmed, StoreMissing
from localqueue.spark.leadership import Leadership
from localqueue.spark.pipeline.events import EVENTS
from localqueue.spark.pipeline.feeds import claim
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.pipeline import Pipeline, Progress
from localqueue.spark.pipeline.places import Feed, Place
from tests.pipeline.reckoning import journal_of, reckon, rows_of
from tests.pipeline.working import open_queue, work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def queue(url: str) -> PersistentQueue[Any]:
    return open_queue(url)


def in_the_lake(lake: Lake) -> list[tuple[str, str, str]]:
    return [(row["position"], row["queue"], row["kind"]) for row in rows_of(lake, "events")]


def test_a_run_brings_the_journal_and_the_next_one_what_is_new(
    spark: SparkSession, url: str, lake: Lake, queue: PersistentQueue[Any]
) -> None:
    pipeline = Pipeline(url, lake, spark=spark)
    work(queue, 20)
    seen: list[Progress] = []

    first = pipeline.run(on_progress=seen.append)
    reckon(lake, queue)
    assert first.events == len(rows_of(lake, "events")) == sum(batch.events for batch in seen)
    tables = ("messages", "minutes", "errors")
    assert [first.added[name] for name in tables] == [len(rows_of(lake, name)) for name in tables]
    assert [row["value"] for row in rows_of(lake, "events")][1] == '{"n":0}'

    work(queue, 5)
    second = pipeline.run()
    reckon(lake, queue)
    assert first.events + second.events == len(rows_of(lake, "events"))

    assert pipeline.run().events == 0
    reckon(lake, queue)


def test_the_journal_is_kept_for_the_pipeline(
    spark: SparkSession, url: str, lake: Lake, queue: PersistentQueue[Any]
) -> None:
    work(queue, 3)
    pipeline = Pipeline(url, lake, name="nightly", spark=spark)
    pipeline.run()
    work(queue, 3)
    pipeline.run()

    (reader,) = queue.readers()

    assert reader.name == "pipeline:nightly"
    assert reader.position in [position for position, _, _ in in_the_lake(lake)]


def test_with_its_checkpoint_deleted_nothing_comes_twice(
    spark: SparkSession, url: str, lake: Lake, queue: PersistentQueue[Any]
) -> None:
    pipeline = Pipeline(url, lake, spark=spark)
    work(queue, 10)
    pipeline.run()
    shutil.rmtree(Path(lake.location.uri, "_checkpoints"))
    work(queue, 10)

    pipeline.run()

    reckon(lake, queue)


def test_a_lake_that_was_put_back_is_brought_up_to_date_again(
    spark: SparkSession, url: str, lake: Lake, queue: PersistentQueue[Any]
) -> None:
    """The checkpoint is ahead then, and following it would leave a hole."""
    pipeline = Pipeline(url, lake, spark=spark)
    work(queue, 5)
    pipeline.run()
    shutil.copytree(lake.location.uri, lake.location.uri + ".backup")
    work(queue, 5)
    pipeline.run()
    for table in ("events", "attempts", "messages", "minutes", "errors"):
        shutil.rmtree(Path(lake.location.uri, table))
        shutil.copytree(Path(lake.location.uri + ".backup", table), Path(lake.location.uri, table))

    pipeline.run()

    reckon(lake, queue)


def test_a_lake_that_was_deleted_is_filled_with_what_the_journal_has(
    spark: SparkSession, url: str, lake: Lake, queue: PersistentQueue[Any]
) -> None:
    pipeline = Pipeline(url, lake, spark=spark)
    work(queue, 5)
    pipeline.run()
    shutil.rmtree(lake.location.uri)
    work(queue, 5)

    pipeline.run()

    reckon(lake, queue)


def test_a_second_one_of_its_name_is_refused_while_it_runs(
    spark: SparkSession, url: str, lake: Lake, queue: PersistentQueue[Any]
) -> None:
    work(queue, 4)
    pipeline = Pipeline(url, lake, name="nightly", spark=spark)
    running = Leadership(queue.store, "pipeline:nightly")

    with pytest.raises(ConfigurationError, match="'pipeline:nightly' belongs to another query"):
        pipeline.run()

    running.close()
    pipeline.run()
    reckon(lake, queue)


def test_a_second_one_leaves_the_checkpoint_of_the_first_alone(
    spark: SparkSession, url: str, lake: Lake, queue: PersistentQueue[Any]
) -> None:
    """What the first one has read need not be in the lake yet."""
    work(queue, 4)
    checkpoint = checkpoint_at(lake, queue.store.journal_end())
    running = Leadership(queue.store, "pipeline:default")

    with pytest.raises(ConfigurationError, match="belongs to another query"):
        Pipeline(url, lake, spark=spark).run()

    running.close()
    assert [path.name for path in checkpoint.parent.iterdir()] == [checkpoint.name]
    assert not queue.readers()


def checkpoint_at(lake: Lake, position: str) -> Path:
    """A checkpoint of a query that has read so far."""
    folder = Path(lake.location.uri, "_checkpoints", "default")
    offset = json.dumps({"store": position[:16], "0": int(position[16:], 16)})
    batch = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'
    for name, lines in (("offsets", [batch, offset]), ("commits", ["{}"])):
        (folder / name).mkdir(parents=True)
        (folder / name / "0").write_text("\n".join(["v1", *lines]))
    (folder / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    return folder


def test_pipelines_of_other_queues_share_a_lake_and_those_that_overlap_are_refused(
    spark: SparkSession, url: str, lake: Lake, queue: PersistentQueue[Any]
) -> None:
    other: PersistentQueue[Any] = PersistentQueue("mails", store=url)
    work(queue, 4)
    work(other, 4)

    Pipeline(url, lake, name="a", queues=["jobs"], spark=spark).run()
    Pipeline(url, lake, name="b", queues=["mails"], spark=spark).run()

    journal = [(event.position, event.queue, event.kind) for event in journal_of(queue)]
    assert in_the_lake(lake) == [event for event in journal if event[1] in ("jobs", "mails")]
    with pytest.raises(ConfigurationError, match="all queues: some would be there twice"):
        Pipeline(url, lake, name="c", spark=spark).run()


def test_a_journal_that_was_trimmed_is_an_error_or_a_gap_that_is_recorded(
    spark: SparkSession, url: str, lake: Lake, queue: PersistentQueue[Any]
) -> None:
    work(queue, 4)
    Pipeline(url, lake, spark=spark).run()
    reached = rows_of(lake, "events")[-1]["seq"]
    queue.drop_reader("pipeline:default")
    few = Journal(max_rows=10)
    trimmed: PersistentQueue[Any] = PersistentQueue("jobs", store=url, journal_policy=few)
    for _ in range(8):
        trimmed.put_many([{}] * 1000)
    missing = _trimmed(url)
    assert missing > reached

    with pytest.raises(JournalTrimmed, match=f"'jobs' up to {missing}"):
        Pipeline(url, lake, spark=spark).run()
    for _ in range(2):
        Pipeline(url, lake, spark=spark, fail_on_data_loss=False).run()

    (gap,) = rows_of(lake, "gaps")
    assert (gap["queue"], gap["after"], gap["upto"]) == ("jobs", reached, missing)
    assert rows_of(lake, "events")[-1]["seq"] > missing


def test_a_journal_that_was_trimmed_for_a_lake_that_was_put_back_is_an_error_too(
    spark: SparkSession, url: str, lake: Lake
) -> None:
    """The checkpoint is ahead of the lake, and nothing between them is left."""
    few = Journal(max_rows=10)
    with PersistentQueue[Any]("jobs", store=url, journal_policy=few) as queue:
        queue.put({})
        seen = queue.store.journal_end()
        here = Place(seen[:16], "0")
        events = lake.create(EVENTS)
        claim(events, Feed(), here.store)
        assert events.append([], Feed(), {here: int(seen[16:], 16)})
        for _ in range(8):
            queue.put_many([{}] * 1000)
        missing = _trimmed(url)
        assert missing > int(seen[16:], 16)
        checkpoint_at(lake, f"{here.store}{missing:016x}")

        with pytest.raises(JournalTrimmed, match=f"'jobs' up to {missing}"):
            Pipeline(url, lake, spark=spark).run()


def _trimmed(url: str) -> int:
    with sqlite3.connect(url.removeprefix("sqlite:///")) as db:
        found: int = db.execute("SELECT max(trimmed) FROM kept").fetchone()[0]
    db.close()
    return found


def test_an_event_that_is_no_event_is_quarantined_and_the_others_come(
    spark: SparkSession, url: str, store_path: Path, lake: Lake, queue: PersistentQueue[Any]
) -> None:
    work(queue, 5)
    queue.store.close()
    with sqlite3.connect(store_path) as db:
        (bad,) = db.execute("SELECT min(seq) FROM event WHERE kind = 5").fetchone()
        db.execute("UPDATE event SET kind = 99 WHERE seq = ?", (bad,))
        (broken,) = db.execute("SELECT max(seq) FROM event WHERE body IS NOT NULL").fetchone()
        db.execute(
            "UPDATE body SET value = ? WHERE id = (SELECT body FROM event WHERE seq = ?)",
            (b'{"n":', broken),
        )
    db.close()

    run = Pipeline(url, lake, spark=spark).run()

    found = {row["seq"]: row["reason"] for row in rows_of(lake, "quarantine")}
    assert found == {bad: "its kind is unknown", broken: "its value is not JSON"}
    seqs = [row["seq"] for row in rows_of(lake, "events")]
    assert bad not in seqs
    assert broken in seqs
    assert len(seqs) + 1 == run.events


def test_a_store_that_does_not_exist_is_said_to_be_missing(
    spark: SparkSession, url: str, store_path: Path, lake: Lake
) -> None:
    with pytest.raises(StoreMissing):
        Pipeline(url, lake, spark=spark).run()

    assert not store_path.exists()
    assert not Path(lake.location.uri).exists()


def test_another_store_under_the_same_name_is_refused_and_comes_under_another(
    spark: SparkSession, url: str, tmp_path: Path, lake: Lake, queue: PersistentQueue[Any]
) -> None:
    work(queue, 3)
    Pipeline(url, lake, spark=spark).run()
    second = f"sqlite:///{tmp_path / 'second.sqlite3'}"
    work(PersistentQueue("jobs", store=second), 3)

    with pytest.raises(JournalForeign):
        Pipeline(second, lake, spark=spark).run()
    Pipeline(second, lake, name="second", spark=spark).run()

    assert len({row["store"] for row in rows_of(lake, "events")}) == 2


def test_what_is_older_than_wanted_is_let_go(
    spark: SparkSession, url: str, lake: Lake, queue: PersistentQueue[Any]
) -> None:
    work(queue, 3)

    Pipeline(url, lake, spark=spark, retention={"attempts": timedelta(0)}).run()

    assert rows_of(lake, "attempts") == []
    assert len(rows_of(lake, "messages")) == 3
    with pytest.raises(ConfigurationError, match="no table that has one is called 'event'"):
        Pipeline(url, lake, spark=spark, retention={"event": timedelta(days=1)})
