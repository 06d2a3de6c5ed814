"""A batch read gives every message once, as the store shows it, and changes nothing."""

from __future__ import annotations

import dataclasses
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from localqueue import PersistentQueue
from localqueue.errors import (
    ConfigurationError,
    DamagedMessage,
    StoreCorrupt,
    StoreMissing,
    StoreMoved,
    StoreUnsupported,
)
from localqueue.message import Receipt
from localqueue.policies import (
    DynamicFanoutSubscriptions,
    OrderingKeys,
    PublishSubscribeRouting,
)
from localqueue.spark.data_source import LocalQueueSource
from localqueue.spark.read.scan import read_task
from localqueue.spark.read.schema import MESSAGE_COLUMNS
from localqueue.spark.read.sqlite import plan as sqlite_plan
from localqueue.spark.read.sqlite import rows as sqlite_rows
from localqueue.spark.read.sqlite.library import read_by_adbc, read_by_sqlite3
from localqueue.spark.read.sqlite.tables import MESSAGE_CELLS, MESSAGES
from localqueue.spark.read.sqlite.task import SQLiteTask
from localqueue.stores.protocol import LeaseRequest, Put
from localqueue.stores.sqlite import open_files
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.spark.full_store import fill
from tests.spark.reading import (
    all_messages,
    comparable,
    event_row,
    in_order,
    options_of,
    plan,
    read,
    rows_of,
    source_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FULL = ",".join(MESSAGE_COLUMNS)
"""Also the column that is there on request."""


@pytest.fixture
def jobs(store_path: Path) -> Iterator[PersistentQueue[Any]]:
    with PersistentQueue[Any]("jobs", store_path=store_path) as queue:
        yield queue


def load(spark: SparkSession, url: str, **options: str) -> DataFrame:
    return spark.read.format("localqueue").options(url=url, **options).load()


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# --- what is read ---------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("partitions", ["1", "3"])
def test_every_message_is_read_once_as_the_store_shows_it(
    seed: int, partitions: str, store_path: Path, url: str
) -> None:
    store, now = fill(store_path, seed)

    with store:
        rows = [comparable(row) for row in read(url, minPartitions=partitions)]

        assert len(rows) == sum(store.stats(queue, now=now).total for queue in store.queues())
        assert len({(row["queue"], row["id"]) for row in rows}) == len(rows)
        assert rows == all_messages(store, rows)
        # Or the comparison would say little.
        assert {row["state"] for row in rows} == {"ready", "inflight", "dead"}
        assert {row["codec"] for row in rows} == {"json", "bytes"}
        for name in rows[0]:
            assert any(row[name] is not None for row in rows), name


def test_the_same_rows_come_from_both_libraries(store_path: Path) -> None:
    store, _ = fill(store_path, 1)
    stat = store_path.stat()
    inode = stat.st_dev, stat.st_ino
    select = MESSAGES.select(list(MESSAGE_CELLS), "{id} > 0", (0, 0))
    kinds = list(MESSAGE_CELLS.values())

    by_sqlite3 = read_by_sqlite3(store_path, inode, select, kinds)
    store.close()
    with open_files.alone(inode):
        by_adbc = read_by_adbc(store_path, select, kinds)

    assert cells_of(by_adbc) == cells_of(by_sqlite3)
    assert len(cells_of(by_adbc)) > 50


def cells_of(batches: list[pa.RecordBatch]) -> list[tuple[Any, ...]]:
    return [
        row
        for batch in batches
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]


def test_a_process_that_does_not_use_the_file_reads_the_same(store_path: Path, url: str) -> None:
    store, _ = fill(store_path, 2)

    beside = in_order(read(url, columns=FULL))
    store.close()
    alone = in_order(read(url, columns=FULL))

    assert alone == beside


def test_spark_shows_the_same_rows_and_types(
    spark: SparkSession, store_path: Path, url: str
) -> None:
    store, _ = fill(store_path, 3)
    store.close()

    found = load(spark, url, minPartitions="3", columns=FULL)

    rows = in_order(read(url, columns=FULL))
    for row in rows:
        row["headers"] = None if row["headers"] is None else dict(row["headers"])
    shown = found.selectExpr(
        *(
            f"cast(unix_micros({name}) as bigint) as {name}" if kind == "timestamp" else name
            for name, kind in found.dtypes
        )
    )
    assert found.rdd.getNumPartitions() == 3
    assert in_order(row.asDict(recursive=True) for row in shown.collect()) == [
        {name: micros(value) for name, value in row.items()} for row in rows
    ]


def micros(value: Any) -> Any:
    return round(value.timestamp() * 1_000_000) if hasattr(value, "timestamp") else value


@pytest.mark.parametrize("seed", [1, 3])
def test_dead_letters_are_those_that_the_store_lists(seed: int, store_path: Path, url: str) -> None:
    store, _ = fill(store_path, seed)

    with store:
        rows = [comparable(row) for row in read(url, content="dead_letters")]

        listed = [letter for queue in store.queues() for letter in store.dead_letters(queue)]
        assert sorted((row["queue"], row["id"]) for row in rows) == sorted(
            (letter.queue, letter.id) for letter in listed
        )
        assert listed
        assert rows == all_messages(store, rows)


@pytest.mark.parametrize("seed", [1, 3])
def test_the_journal_is_read_as_the_store_shows_it(seed: int, store_path: Path, url: str) -> None:
    store, _ = fill(store_path, seed)

    with store:
        rows = [comparable(row) for row in read(url, content="journal", minPartitions="2")]

        events = store.journal(None, after=None, limit=100_000)
        assert sorted(rows, key=lambda row: row["seq"]) == [event_row(event) for event in events]
        assert len(rows) > 1000
        for name in rows[0]:
            assert any(row[name] is not None for row in rows), name


def test_one_of_several_queues_is_read_alone(store_path: Path, url: str) -> None:
    store, now = fill(store_path, 1)

    with store:
        for queue in store.queues():
            rows = read(url, queue=queue)
            assert {row["queue"] for row in rows} <= {queue}
            assert len(rows) == store.stats(queue, now=now).total
        some = read(url, queue="rare,keys,cursor.b")
        assert {row["queue"] for row in some} >= {"rare", "cursor.b"}


def test_few_messages_beside_many_are_found_by_an_index(
    store_path: Path, url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put_many(list(range(300)))
    with PersistentQueue[Any]("few", store_path=store_path, ordering_policy=OrderingKeys()) as few:
        few.put_many([1, 2], ordering_key="k")
        few.put(3, delay=60.0)
        few.put(4)
        few.dead_letter(few.get_message())

        rows = read(url, queue="few")

        assert sorted(row["value"] for row in rows) == ["1", "2", "3", "4"]
        steps = plan_of(store_path, plan(options_of(url, queue="few")))
        assert len(steps) == 5
        for index in ("ready", "delayed", "keyed", "lease", "dead"):
            assert any(f"USING INDEX message_{index}" in step for step in steps), (index, steps)


def test_a_message_that_goes_from_state_to_state_meanwhile_is_there_once(
    store_path: Path, url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put_many(list(range(300)))
    with PersistentQueue[Any]("few", store_path=store_path) as few:
        few.put_many([1, 2, 3])
        [task] = plan(options_of(url, queue="few"))
        batches = read_task(task)

        rows = next(batches).to_pylist()
        few.get_message()
        rows += [row for batch in batches for row in batch.to_pylist()]

        assert sorted(row["value"] for row in rows) == ["1", "2", "3"]


def plan_of(path: Path, tasks: list[Any]) -> list[str]:
    """How SQLite runs the statements of these tasks."""
    steps = []
    with closing(sqlite3.connect(path)) as db:
        for task in tasks:
            for span in task.spans:
                for table, where in span.tables:
                    select = table.select(["id", "value"], where, span.ranges[0])
                    steps.append(
                        "; ".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {select}"))
                    )
    return steps


def test_ids_of_a_restored_backup_are_right_before_and_after(tmp_path: Path, url: str) -> None:
    path = tmp_path / "first.sqlite3"
    with PersistentQueue[int]("jobs", store_path=path) as first:
        old = [first.put(n).id for n in range(3)]
        assert isinstance(first.store, SQLiteQueueStore)
        first.store.backup(tmp_path / "queue.sqlite3")
    with PersistentQueue[int]("jobs", store_path=tmp_path / "queue.sqlite3") as second:
        new = [second.put(n).id for n in range(3, 5)]

    rows = read(url)

    assert {row["value"]: row["id"] for row in rows} == dict(
        zip(map(str, range(5)), [*old, *new], strict=True)
    )


# --- what may happen between the plan and the read ------------------------------------------------
def test_what_is_put_later_is_left_out_and_what_is_gone_too(
    url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put_many([1, 2, 3])
    tasks = plan(options_of(url))
    jobs.ack(jobs.get_message())
    leased = jobs.get_message()
    jobs.put(4)

    rows = rows_of(tasks)

    assert {row["value"]: row["state"] for row in rows} == {"2": "inflight", "3": "ready"}
    assert {row["leased_by"] for row in rows} == {leased.leased_by}


def test_a_publication_that_its_subscriber_reads_meanwhile_is_there_once(
    store_path: Path, url: str
) -> None:
    store = SQLiteQueueStore(store_path)
    store.configure("news", {"fanout": "cursor"}, now=1.0)
    for name in ("a", "b"):
        store.subscribe("news", name, start="now", now=1.0)
    store.enqueue_many([Put("news", b"%d" % n) for n in range(6)], now=2.0)
    tasks = plan(options_of(url, queue="news.a"))
    leased = store.lease(LeaseRequest(("news.a",), limit=4, timeout=60.0), now=3.0)
    store.ack_many([Receipt(m.queue, m.id, m.token) for m in leased[:2]], now=3.0)
    store.enqueue_many([Put("news", b"6")], now=4.0)

    rows = rows_of(tasks)

    assert {row["value"]: row["state"] for row in rows} == {
        "2": "inflight", "3": "inflight", "4": "ready", "5": "ready",
    }  # fmt: skip
    assert {row["id"] for row in rows} >= {message.id for message in leased[2:]}
    store.close()


def test_rows_that_stop_being_usual_are_read_with_all_their_cells(
    store_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_plan, "MOST_ROWS", 10)
    monkeypatch.setattr(sqlite_plan, "LEAST_ROWS", 1)
    with PersistentQueue[Any]("jobs", store_path=store_path) as queue:
        queue.put_many(list(range(30)))
        queue.put_many(list(range(30, 40)), headers={"a": "b"})
        queue.put_many(list(range(40, 60)))
        queue.put("x" * 5000, dedupe_key="key")
        assert isinstance(queue.store, SQLiteQueueStore)

        rows = [comparable(row) for row in read(url)]

        assert len(rows) == 61
        assert rows == all_messages(queue.store, rows)
        assert sum(row["headers"] is not None for row in rows) == 10


def test_large_values_are_read_in_parts(
    url: str, jobs: PersistentQueue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_rows, "MOST_BYTES", 20_000)
    values = ["x" * 6000 + str(n) for n in range(20)]
    jobs.put_many(values)
    (task,) = plan(options_of(url, columns="id,value"))

    batches = list(read_task(task))

    assert len(batches) >= 5
    found = [value for batch in batches for value in batch["value"].to_pylist()]
    assert sorted(found) == sorted(f'"{value}"' for value in values)


def test_nothing_is_open_while_somebody_has_a_batch(store_path: Path, url: str) -> None:
    with PersistentQueue[int]("jobs", store_path=store_path) as queue:
        queue.put_many(list(range(100)))
    stat = store_path.stat()
    (task,) = plan(options_of(url))
    batches = read_task(task)

    next(batches)

    # Neither in this process, nor as a transaction that keeps the -wal from starting anew.
    with open_files.alone((stat.st_dev, stat.st_ino)):
        pass
    with closing(sqlite3.connect(store_path)) as db:
        assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0


def test_the_read_makes_no_checkpoint(store_path: Path, url: str) -> None:
    with PersistentQueue[int]("jobs", store_path=store_path) as queue:
        queue.put_many(list(range(100)))
        wal = store_path.with_name(f"{store_path.name}-wal")
        before = wal.stat().st_size
        # As a process would that has nothing else of the file.
        copy = store_path.with_name("copy.sqlite3")
        shutil.copy(store_path, copy)
        shutil.copy(wal, copy.with_name(f"{copy.name}-wal"))

    rows = read(f"sqlite:///{copy}")

    assert len(rows) == 100
    assert copy.with_name(f"{copy.name}-wal").stat().st_size == before


# --- the columns ----------------------------------------------------------------------------------
def test_only_the_columns_that_are_asked_for_are_read_in_their_order(
    url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put({"a": 1}, headers={"h": "1"})

    (row,) = read(url, columns="value,priority,id")

    assert list(row) == ["value", "priority", "id"]
    assert row["value"] == '{"a":1}'


def test_bytes_are_in_the_column_body_and_the_codec_says_what_they_are(
    store_path: Path, url: str
) -> None:
    with SQLiteQueueStore(store_path) as store:
        store.enqueue_many(
            [
                Put("q", b"\xff\x00", codec="bytes"),
                Put("q", b'"text"'),
                Put("q", b"1", codec="own"),
            ],
            now=1.0,
        )

    rows = read(url, columns="codec,value,body")

    assert [tuple(row.values()) for row in rows] == [
        ("bytes", None, b"\xff\x00"),
        ("json", '"text"', b'"text"'),
        ("own", None, b"1"),
    ]


def test_a_value_that_is_no_text_is_damage(store_path: Path, url: str) -> None:
    with SQLiteQueueStore(store_path) as store:
        store.enqueue_many([Put("q", b"1"), Put("q", b"2")], now=1.0)
        store.close()
    with closing(sqlite3.connect(store_path)) as db:
        db.execute("UPDATE message SET value = x'ff' WHERE value = x'32'")
        db.commit()

    with pytest.raises(DamagedMessage, match="is not text"):
        read(url)

    assert [row["value"] for row in read(url, mode="permissive")] == ["1", None]


def test_a_column_that_does_not_exist_is_refused_with_the_one_that_was_meant(url: str) -> None:
    with pytest.raises(ConfigurationError, match="did you mean priority"):
        read(url, columns="id,prioriti")


def test_a_schema_of_the_callers_own_is_refused(url: str, jobs: PersistentQueue[Any]) -> None:
    jobs.put(1)
    own = StructType().add("id", StringType()).add("n", IntegerType())

    with pytest.raises(ConfigurationError, match="payloadSchema"):
        source_of(options_of(url), own)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"lease": "true"}, "use readStream"),
        ({"startingOffsets": "latest"}, "as they are now"),
        ({"endingTimestamp": "2026-01-31", "content": "dead_letters"}, "as they are now"),
    ],
)
def test_what_a_batch_cannot_do_is_refused(url: str, given: dict[str, str], says: str) -> None:
    source = LocalQueueSource({"url": url, **given})
    schema = source.schema()
    assert isinstance(schema, StructType)

    with pytest.raises(ConfigurationError, match=says):
        source.reader(schema)


# --- what cannot be read --------------------------------------------------------------------------
def test_a_file_that_is_not_there_is_not_made(tmp_path: Path, url: str) -> None:
    with pytest.raises(StoreMissing, match="no such file"):
        read(url)

    assert files(tmp_path) == set()


def test_an_empty_file_is_no_store(tmp_path: Path, store_path: Path, url: str) -> None:
    store_path.touch()

    with pytest.raises(StoreMissing, match="empty"):
        read(url)

    assert store_path.stat().st_size == 0
    assert files(tmp_path) == {store_path.name}


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreUnsupported, match="no ordinary file"):
        read(f"sqlite:///{tmp_path}")


def test_the_file_of_somebody_else_is_refused_and_left_as_it_is(
    tmp_path: Path, store_path: Path, url: str
) -> None:
    with closing(sqlite3.connect(store_path)) as db:
        db.execute("CREATE TABLE theirs (a)")
    before = store_path.read_bytes()

    with pytest.raises(StoreUnsupported, match="another application"):
        read(url)

    assert store_path.read_bytes() == before
    assert files(tmp_path) == {store_path.name}


def test_what_is_no_database_is_refused(store_path: Path, url: str) -> None:
    store_path.write_bytes(b"no database" * 100)

    with pytest.raises(StoreCorrupt):
        read(url)


@pytest.mark.parametrize(("version", "words"), [(99, "Upgrade localqueue"), (1, "open it once")])
def test_a_store_of_another_version_is_refused(
    version: int, words: str, store_path: Path, url: str
) -> None:
    with PersistentQueue[int]("jobs", store_path=store_path) as queue:
        queue.put(1)
    with closing(sqlite3.connect(store_path)) as db:
        db.execute(f"PRAGMA user_version = {version}")

    with pytest.raises(StoreUnsupported, match=words):
        read(url)


def test_a_queue_that_does_not_exist_is_named_with_those_that_do(
    url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put(1)

    with pytest.raises(ConfigurationError, match=r"no queue 'job'.*there are: jobs"):
        read(url, queue="job")


def test_another_host_has_another_file_there(url: str, jobs: PersistentQueue[Any]) -> None:
    jobs.put(1)
    (task,) = plan(options_of(url))
    assert isinstance(task, SQLiteTask)
    elsewhere = dataclasses.replace(task.file, boot_id="of another host")

    with pytest.raises(StoreUnsupported, match="PostgreSQL, or a local master"):
        rows_of([dataclasses.replace(task, file=elsewhere)])


def test_a_file_that_was_replaced_since_the_plan_is_not_read(store_path: Path, url: str) -> None:
    with PersistentQueue[int]("jobs", store_path=store_path) as queue:
        queue.put(1)
    tasks = plan(options_of(url))
    shutil.copy(store_path, store_path.with_name("other"))
    store_path.with_name("other").rename(store_path)

    with pytest.raises(StoreMoved):
        rows_of(tasks)


def test_errors_reach_the_caller_of_spark(
    spark: SparkSession, url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put(1)

    with pytest.raises(Exception, match="there is no queue 'nobody'"):
        load(spark, url, queue="nobody").count()
    with pytest.raises(Exception, match="have no column 'colour'"):
        load(spark, url, columns="colour")


def test_an_empty_store_has_no_rows(url: str, jobs: PersistentQueue[Any]) -> None:
    jobs.put(1)
    jobs.ack(jobs.get_message())

    assert read(url) == []
    assert read(url, content="dead_letters") == []


# --- beside those who write -----------------------------------------------------------------------
def test_reading_beside_writers_loses_nothing_that_stays(
    store_path: Path, url: str, jobs: PersistentQueue[Any]
) -> None:
    stay = {jobs.put({"stays": n}).id for n in range(200)}
    stop = threading.Event()
    errors: list[BaseException] = []

    def churn() -> None:
        try:
            with PersistentQueue[Any]("other", store_path=store_path) as other:
                while not stop.is_set():
                    other.put_many([1] * 20)
                    for message in [other.get_message() for _ in range(20)]:
                        other.ack(message)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(10):
            found = [row["id"] for row in read(url) if row["queue"] == "jobs"]
            assert len(found) == len(stay)
            assert set(found) == stay
    finally:
        stop.set()
        thread.join()

    assert errors == []


def test_a_topic_without_subscribers_left_can_be_read(store_path: Path, url: str) -> None:
    topic = PersistentQueue[int](
        "news",
        store_path=store_path,
        routing_policy=PublishSubscribeRouting(fanout_mode="cursor"),
        subscription_policy=DynamicFanoutSubscriptions(),
    )
    with topic:
        topic.subscribe("a")
        topic.put(1)
        topic.unsubscribe("a")

        assert isinstance(read(url), list)
