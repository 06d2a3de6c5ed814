"""Each row is put once: when tasks are tried again, drivers die, and batches come back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from queue import Full
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import (
    DataType,
    DoubleType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from localqueue import PersistentQueue, failpoints
from localqueue.errors import ConfigurationError, StoreCorrupt
from localqueue.spark.options import Options
from localqueue.spark.write import portions, sink_ledger
from localqueue.spark.write.sink_ledger import Entry, SinkBatch, Verdict, judge
from localqueue.spark.write.streaming_query import RunningQuery
from localqueue.spark.write.writer import BatchWriter, StreamWriter, Written
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.spark.clusters import Server
from tests.spark.write_cluster_program import KILLER, copy_journal
from tests.spark.writing import (
    batch_writer,
    ledger,
    messages,
    numbers,
    put_numbers,
    run_tasks,
    staged,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = StructType([StructField("value", StringType())])
ROOT = Path(__file__).parents[2]
MANY = 12_000
"""Rows that do not fit one message, nor one transaction."""


def job(url: str, batch: str = "1", **options: str) -> BatchWriter:
    return batch_writer(url, SCHEMA, queue="jobs", sinkId="orders", batchId=batch, **options)


def stream(url: str, checkpoint: Path, **options: str) -> StreamWriter:
    """The writer of a query with this checkpoint, as it is made for each batch anew."""
    checkpoint.mkdir(exist_ok=True)
    (checkpoint / "metadata").write_text(json.dumps({"id": f"id of {checkpoint.name}"}))
    given = {"url": url, "queue": "jobs", "checkpointLocation": str(checkpoint), **options}
    return StreamWriter(Options.parse(given), SCHEMA, False)


def write_batch(writer: StreamWriter, batch: int, start: int, stop: int) -> None:
    writer.commit([*run_tasks(writer, SCHEMA, numbers(start, stop))], batch)


class Stop(Exception):
    """Stands for whatever ends a driver where a test wants it to."""


def stopping_at(point: str, times: int = 1) -> Callable[[str], None]:
    left = times

    def listen(reached: str) -> None:
        nonlocal left
        left -= reached == point
        if reached == point and left == 0:
            raise Stop

    return listen


# --- a driver that dies ---------------------------------------------------------------------------
def test_a_driver_killed_at_any_step_is_gone_on_from_by_the_next(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "tests.spark.write_program", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )

    told = [json.loads(line) for line in answer.stdout.splitlines()]
    for moment in told:
        assert moment["died"], moment
        assert moment["ended"] == 0, moment
        assert moment["exactly_once"], moment
    assert [moment["put_before"] for moment in told] == [0, 0, 0, 10_000, 20_000, 21_000, 21_000]
    # What was never recorded stays until it is old; the others' files are gone.
    assert [moment["files"] for moment in told] == [2, 2, 0, 0, 0, 0, 0]


def test_the_recorded_rows_count_and_not_the_ones_that_were_made_again(
    url: str, store_path: Path
) -> None:
    first = job(url)
    with failpoints.listening(stopping_at("sink.after-chunk")), pytest.raises(Stop):
        first.commit([*run_tasks(first, SCHEMA, numbers(0, MANY))])
    assert len(messages(url)) == 10_000

    again = job(url)
    again.commit([*run_tasks(again, SCHEMA, numbers(50_000, 50_000 + MANY))])

    assert put_numbers(url) == list(range(MANY))
    assert staged(store_path) == []


def test_a_failed_write_keeps_the_files_that_are_recorded_and_no_others(
    url: str, store_path: Path
) -> None:
    writer = job(url)
    tasks = run_tasks(writer, SCHEMA, numbers(0, MANY))
    [recorded] = staged(store_path)
    with failpoints.listening(stopping_at("sink.after-manifest")), pytest.raises(Stop):
        writer.commit([*tasks])
    run_tasks(writer, SCHEMA, numbers(0, MANY))

    writer.abort([*tasks, None])

    assert staged(store_path) == [recorded]
    again = job(url)
    again.commit([*run_tasks(again, SCHEMA, numbers(0, MANY))])
    assert put_numbers(url) == list(range(MANY))


def test_a_write_that_fails_before_it_is_recorded_leaves_nothing(
    url: str, store_path: Path
) -> None:
    writer = batch_writer(url, SCHEMA, queue="jobs")
    tasks = run_tasks(writer, SCHEMA, numbers(0, MANY))

    writer.abort([*tasks, None])

    assert staged(store_path) == []
    assert messages(url) == []


def test_a_recorded_file_that_is_lost_is_an_error_and_not_a_batch_without_it(
    url: str, store_path: Path
) -> None:
    writer = job(url)
    with failpoints.listening(stopping_at("sink.after-chunk")), pytest.raises(Stop):
        writer.commit([*run_tasks(writer, SCHEMA, numbers(0, MANY))])
    shutil.rmtree(store_path.with_name(f"{store_path.name}-staging"))

    again = job(url)
    with pytest.raises(
        StoreCorrupt,
        match=r"batch '1' of sinkId 'orders' cannot go on: the staged file .* is not there;"
        r" .*\. 2,000 of its 12,000 rows are not put\. Bring its 1 files back to .*-staging;"
        r" .* with another sinkId, which puts all its rows, 10,000 of them for the second time",
    ):
        again.commit([*run_tasks(again, SCHEMA, numbers(0, MANY))])

    assert len(messages(url)) == 10_000


@pytest.mark.parametrize("damage", ["lost", "changed"])
def test_lost_files_of_a_batch_that_is_not_begun_are_replaced_by_the_same_rows(
    url: str, store_path: Path, damage: str
) -> None:
    writer = job(url)
    with failpoints.listening(stopping_at("sink.after-manifest")), pytest.raises(Stop):
        writer.commit([*run_tasks(writer, SCHEMA, numbers(0, MANY))])
    folder = store_path.with_name(f"{store_path.name}-staging")
    [file] = folder.iterdir()
    if damage == "lost":
        shutil.rmtree(folder)
    else:
        file.write_bytes(file.read_bytes()[:-100])

    other = job(url)
    with pytest.raises(StoreCorrupt, match="12,000 of its 12,000 rows are not put") as caught:
        other.commit([*run_tasks(other, SCHEMA, numbers(1, MANY + 1))])
    assert "second time" not in str(caught.value)
    assert messages(url) == []

    again = job(url)
    again.commit([*run_tasks(again, SCHEMA, numbers(MANY // 2, MANY), numbers(0, MANY // 2))])

    assert sorted(put_numbers(url)) == list(range(MANY))
    assert [entry["done"] for entry in ledger(url)] == [MANY]


def test_the_files_of_an_older_batch_are_not_replaced_by_rows_of_another(
    url: str, tmp_path: Path, store_path: Path
) -> None:
    writer = stream(url, tmp_path / "a")
    with failpoints.listening(stopping_at("sink.after-manifest")), pytest.raises(Stop):
        write_batch(writer, 0, 0, MANY)
    shutil.rmtree(store_path.with_name(f"{store_path.name}-staging"))

    with pytest.raises(StoreCorrupt, match="batch '0' of the sink of checkpoint id of a cannot"):
        write_batch(writer, 1, 0, MANY)

    assert messages(url) == []


def test_old_files_that_no_batch_needs_are_removed(url: str, store_path: Path) -> None:
    halfway, lost = job(url, "1"), job(url, "2")
    with failpoints.listening(stopping_at("sink.after-manifest")), pytest.raises(Stop):
        halfway.commit([*run_tasks(halfway, SCHEMA, numbers(0, MANY))])
    needed = staged(store_path)
    run_tasks(lost, SCHEMA, numbers(0, MANY))
    folder = store_path.with_name(f"{store_path.name}-staging")
    (folder / "somebody else's").touch()
    long_ago = time.time() - 2 * 86_400
    for file in folder.iterdir():
        os.utime(file, (long_ago, long_ago))
    run_tasks(lost, SCHEMA, numbers(0, MANY))
    fresh = set(staged(store_path)) - set(needed) - {"somebody else's"}

    small = job(url, "3")
    small.commit([*run_tasks(small, SCHEMA, numbers(0, 5))])

    left = set(staged(store_path))
    assert {*needed, "somebody else's"} < left
    assert len(left & fresh) == 1


# --- several at once ------------------------------------------------------------------------------
def test_drivers_that_write_one_batch_at_once_put_it_once(
    url: str, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portions, "LARGEST_BATCH", 500)
    writers = [job(url) for _ in range(3)]
    tasks = [run_tasks(writer, SCHEMA, numbers(0, MANY)) for writer in writers]
    errors: list[BaseException] = []

    def commit(writer: BatchWriter, told: list[WriterCommitMessage]) -> None:
        try:
            writer.commit([*told])
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=commit, args=pair) for pair in zip(writers, tasks, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert put_numbers(url) == list(range(MANY))
    assert staged(store_path) == []


@pytest.mark.parametrize("point", ["sink.before-manifest", "sink.after-manifest"])
def test_a_driver_that_is_overtaken_finds_its_batch_done_and_its_files_gone(
    url: str, store_path: Path, point: str
) -> None:
    slow, fast = job(url), job(url)
    told = run_tasks(slow, SCHEMA, numbers(0, MANY))
    overtaken = threading.Event()

    def overtake(reached: str) -> None:
        if reached == point and not overtaken.is_set():
            overtaken.set()
            fast.commit([*run_tasks(fast, SCHEMA, numbers(0, MANY))])

    with failpoints.listening(overtake):
        slow.commit([*told])

    assert overtaken.is_set()
    assert put_numbers(url) == list(range(MANY))
    assert staged(store_path) == []


def test_of_two_attempts_of_a_task_one_counts_and_the_others_file_goes(
    url: str, store_path: Path
) -> None:
    writer = batch_writer(url, SCHEMA, queue="jobs")
    first, _speculative = run_tasks(writer, SCHEMA, numbers(0, MANY), numbers(0, MANY))
    assert len(staged(store_path)) == 2

    writer.commit([first])

    assert put_numbers(url) == list(range(MANY))
    assert staged(store_path) == []


# --- batches that come again ----------------------------------------------------------------------
def test_a_batch_of_a_job_that_is_done_is_not_put_again(url: str) -> None:
    for _ in range(2):
        writer = job(url)
        writer.commit([*run_tasks(writer, SCHEMA, numbers(0, 5))])

    assert put_numbers(url) == list(range(5))
    for batch in ("2", "0", ""):
        other = job(url, batch) if batch else batch_writer(url, SCHEMA, queue="b", sinkId="orders")
        other.commit([*run_tasks(other, SCHEMA, numbers(0, 1))])
    assert put_numbers(url) == [*range(5), 0, 0]
    assert put_numbers(url, "b") == [0]


@pytest.mark.parametrize("rows", [5, MANY])
def test_a_batch_of_a_job_that_has_other_rows_now_is_an_error(url: str, rows: int) -> None:
    first = job(url)
    listening = failpoints.listening(stopping_at("sink.after-chunk"))
    with listening, pytest.raises(Stop):
        first.commit([*run_tasks(first, SCHEMA, numbers(0, rows))])

    for _ in range(2):
        again = job(url)
        told = run_tasks(again, SCHEMA, numbers(0, rows + 1))
        with pytest.raises(ConfigurationError, match=f"written with {rows:,} rows, which are put"):
            again.commit([*told])

    assert put_numbers(url) == list(range(rows))


def test_a_job_without_batches_is_written_once_and_other_rows_are_an_error(url: str) -> None:
    for _ in range(2):
        writer = batch_writer(url, SCHEMA, queue="jobs", sinkId="once")
        writer.commit([*run_tasks(writer, SCHEMA, numbers(0, 5))])
    again = batch_writer(url, SCHEMA, queue="jobs", sinkId="once")
    with pytest.raises(ConfigurationError, match="Give them a batchId of their own"):
        again.commit([*run_tasks(again, SCHEMA, numbers(5, 10))])

    assert put_numbers(url) == list(range(5))


def test_a_named_batch_that_is_done_is_left_out_only_when_its_rows_are_the_same(url: str) -> None:
    first = job(url)
    first.commit([*run_tasks(first, SCHEMA, numbers(0, 3), numbers(3, 6))])

    replayed = job(url)
    told = run_tasks(replayed, SCHEMA, numbers(0, 6)[::-2], numbers(0, 6)[::2], [])
    replayed.commit([*told])
    other = job(url)
    with pytest.raises(ConfigurationError, match="the 6 of this run are others and are not"):
        other.commit([*run_tasks(other, SCHEMA, numbers(6, 12))])

    assert put_numbers(url) == list(range(6))


@pytest.mark.parametrize(
    ("column", "kind", "a", "b"),
    [
        ("headers", MapType(StringType(), StringType()), {"a": "1"}, {"a": "2"}),
        ("priority", IntegerType(), 1, 2),
        ("delay", DoubleType(), 0.5, 1.5),
        ("ttl", DoubleType(), 0.5, 1.5),
        ("dedupe_key", StringType(), "a", "b"),
        ("ordering_key", StringType(), "a", "b"),
    ],
)
def test_rows_are_the_same_when_all_their_columns_are(
    url: str, column: str, kind: DataType, a: object, b: object
) -> None:
    schema = StructType([*SCHEMA.fields, StructField(column, kind)])
    rows = [("1", None), ("1", a)], [("1", a), ("1", None)], [("1", None), ("1", b)], [("1", a)] * 2

    writer = batch_writer(url, schema, queue="jobs")
    told = run_tasks(writer, schema, *rows)

    digests = [one.facts["jobs"].digest for one in told if isinstance(one, Written)]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def in_query(told: list[WriterCommitMessage], query: str, run: str) -> list[WriterCommitMessage]:
    """As the tasks of a query tell it."""
    known = RunningQuery(query, run)
    return [replace(one, query=known) for one in told if isinstance(one, Written)]


def test_the_second_write_of_a_name_is_an_error_after_a_crash_between_the_two(url: str) -> None:
    def write(run: str, rows: list[tuple[str]]) -> None:
        writer = job(url, "0")
        writer.commit([*in_query(run_tasks(writer, SCHEMA, rows), "query", run)])

    write("run 1", numbers(0, 5))
    # The driver dies, and Spark hands over the batch again.
    write("run 2", numbers(0, 5))
    with pytest.raises(ConfigurationError, match="Give each write of a foreachBatch function"):
        write("run 2", numbers(5, 10))

    assert put_numbers(url) == list(range(5))


def test_a_batch_left_half_way_is_the_last_one_that_may_have_other_values(url: str) -> None:
    def write(run: str, rows: list[tuple[str]]) -> None:
        writer = job(url, "0")
        writer.commit([*in_query(run_tasks(writer, SCHEMA, rows), "query", run)])

    with failpoints.listening(stopping_at("sink.after-chunk")), pytest.raises(Stop):
        write("run 1", numbers(0, MANY))
    write("run 2", numbers(1, MANY + 1))
    with pytest.raises(ConfigurationError, match="Give each write of a foreachBatch function"):
        write("run 2", numbers(2, MANY + 2))

    assert put_numbers(url) == list(range(MANY))


def test_a_batch_without_rows_does_not_hide_whose_sink_it_is(url: str, tmp_path: Path) -> None:
    def write(query: str, batch: int, rows: list[tuple[str]]) -> None:
        writer = stream(url, tmp_path / query, sinkId="copy")
        told = in_query(run_tasks(writer, SCHEMA, rows), query, "run") if rows else []
        writer.commit([*told], batch)

    write("a", 0, numbers(0, 2))
    write("a", 1, [])

    with pytest.raises(ConfigurationError, match="sinkId 'copy' belongs to another query"):
        write("b", 2, numbers(2, 4))
    assert put_numbers(url) == [0, 1]


@pytest.mark.parametrize("batch", [None, "monday"])
def test_in_a_query_a_named_write_needs_the_number_of_its_batch(
    url: str, batch: str | None
) -> None:
    options = {} if batch is None else {"batchId": batch}
    writer = batch_writer(url, SCHEMA, queue="jobs", sinkId="s", **options)
    [told] = run_tasks(writer, SCHEMA, numbers(0, 5))
    assert isinstance(told, Written)

    with pytest.raises(ConfigurationError, match="needs batchId too: the number"):
        writer.commit([replace(told, query=RunningQuery("query", "run"))])

    assert messages(url) == []


def test_a_write_without_a_name_is_put_each_time(url: str) -> None:
    for _ in range(2):
        writer = batch_writer(url, SCHEMA, queue="jobs")
        writer.commit([*run_tasks(writer, SCHEMA, numbers(0, 2))])

    assert put_numbers(url) == [0, 1, 0, 1]
    assert ledger(url) == []


def test_a_query_has_one_record_and_goes_on_from_batch_to_batch(url: str, tmp_path: Path) -> None:
    writer = stream(url, tmp_path / "a")

    for batch in (0, 1, 1, 4, 5):
        write_batch(writer, batch, 10 * batch, 10 * batch + 3)

    assert put_numbers(url) == [0, 1, 2, 10, 11, 12, 40, 41, 42, 50, 51, 52]
    [entry] = ledger(url)
    assert entry["batch"] == "5"


def test_queries_with_checkpoints_of_their_own_do_not_share_their_batches(
    url: str, tmp_path: Path
) -> None:
    write_batch(stream(url, tmp_path / "a"), 0, 0, 2)
    write_batch(stream(url, tmp_path / "b"), 0, 2, 4)

    assert put_numbers(url) == [0, 1, 2, 3]


def test_a_checkpoint_that_was_restored_is_an_error_and_nothing_is_put(
    url: str, tmp_path: Path
) -> None:
    writer = stream(url, tmp_path / "a")
    write_batch(writer, 0, 0, 1)
    write_batch(writer, 7, 1, 2)

    with pytest.raises(ConfigurationError, match="has batch 7 already and is given batch 3"):
        write_batch(writer, 3, 100, 200)

    assert put_numbers(url) == [0, 1]


def test_a_batch_that_was_left_half_way_is_finished_before_the_next(
    url: str, tmp_path: Path, store_path: Path
) -> None:
    writer = stream(url, tmp_path / "a")
    with failpoints.listening(stopping_at("sink.after-chunk")), pytest.raises(Stop):
        write_batch(writer, 0, 0, MANY)

    write_batch(writer, 1, MANY, MANY + 5)

    assert put_numbers(url) == list(range(MANY + 5))
    assert staged(store_path) == []


def test_a_full_queue_ends_a_query_that_goes_on_when_it_is_started_again(
    url: str, tmp_path: Path, store_path: Path
) -> None:
    with SQLiteQueueStore(store_path) as store:
        store.configure("jobs", {"maxsize": 4}, now=0.0)
    writer = stream(url, tmp_path / "a", putTimeout="0.1")
    with pytest.raises(Full, match="4 of 6 rows are put"):
        write_batch(writer, 0, 0, 6)
    with SQLiteQueueStore(store_path) as store:
        store.configure("jobs", {"maxsize": 0}, now=0.0)

    write_batch(writer, 0, 0, 6)

    assert put_numbers(url) == list(range(6))


def test_what_is_remembered_of_a_finished_batch_ends_and_of_an_unfinished_one_does_not(
    url: str, store_path: Path
) -> None:
    done, halfway = job(url, "1"), job(url, "2")
    done.commit([*run_tasks(done, SCHEMA, numbers(0, 1))])
    with failpoints.listening(stopping_at("sink.after-chunk")), pytest.raises(Stop):
        halfway.commit([*run_tasks(halfway, SCHEMA, numbers(0, MANY))])

    with SQLiteQueueStore(store_path) as store:
        first, second = store.scan_records(sink_ledger.KIND, now=time.time())
        assert first.expires_at == pytest.approx(time.time() + sink_ledger.JOB_IS_KEPT, abs=600)
        assert second.expires_at is None


ENTRY = Entry("5", "query", "run 1", rows=10, digest=1, done=10, version=3)
BATCH = SinkBatch("query:s", "5", "query", "run 2", in_sequence=True, rows=10, digest=1)


@pytest.mark.parametrize(
    ("entry", "batch", "verdict"),
    [
        (None, {}, Verdict.NEW),
        ({}, {"batch": "6"}, Verdict.NEW),
        ({"done": 4}, {"batch": "6"}, Verdict.GO_ON_WITH_OLDER),
        ({}, {}, Verdict.DONE),
        ({"done": 4}, {}, Verdict.GO_ON),
        ({}, {"digest": 2}, Verdict.DONE),
        ({}, {"digest": 1, "run": "run 1"}, Verdict.DONE),
        ({}, {"digest": 2, "run": "run 1"}, "written with 10 other rows before"),
        ({"done": 4}, {"digest": 2, "run": "run 1"}, "written with 10 other rows before"),
        ({}, {"batch": "4"}, "restored or edited"),
        ({}, {"query": "other"}, "sinkId 's' belongs to another query"),
        ({}, {"query": "other", "batch": "6"}, "belongs to another query"),
        ({}, {"query": "other", "batch": "0"}, "belongs to another query"),
        ({}, {"query": None}, Verdict.DONE),
        ({}, {"in_sequence": False, "query": None}, Verdict.DONE),
        ({"done": 0}, {"in_sequence": False, "query": None}, Verdict.GO_ON),
    ],
)
def test_what_is_done_with_a_batch_follows_from_what_is_recorded(
    entry: dict[str, Any] | None, batch: dict[str, Any], verdict: Verdict | str
) -> None:
    recorded = None if entry is None else replace(ENTRY, **entry)
    if isinstance(verdict, str):
        with pytest.raises(ConfigurationError, match=verdict):
            judge(recorded, replace(BATCH, **batch))
    else:
        assert judge(recorded, replace(BATCH, **batch)) is verdict


# --- through Spark --------------------------------------------------------------------------------
def test_a_task_that_is_tried_again_puts_its_rows_once(
    spark: SparkSession, url: str, store_path: Path
) -> None:
    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            raise ZeroDivisionError("the first attempt fails after all of its rows")

    rows = spark.range(0, MANY, 1, 2).selectExpr(
        "to_json(struct(id AS n, repeat('x', 40) AS text)) AS value"
    )

    rows.mapInArrow(fail_once, "value string").write.format("localqueue").mode("append").options(
        url=url, queue="jobs"
    ).save()

    assert put_numbers(url) == list(range(MANY))
    assert staged(store_path) == []


def lines(folder: Path, name: str, *texts: int) -> None:
    """A file for a stream of text files; it appears as a whole."""
    folder.mkdir(exist_ok=True)
    (folder / f".{name}").write_text("".join(f'{{"n":{n}}}\n' for n in texts))
    (folder / f".{name}").rename(folder / name)


def run_to_the_end(rows: DataFrame, checkpoint: Path, url: str, **options: str) -> None:
    query: StreamingQuery = (
        rows.writeStream.format("localqueue")
        .options(url=url, queue="jobs", checkpointLocation=str(checkpoint), **options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def forget_the_last_batch(checkpoint: Path) -> None:
    """As if the driver had died between the sink's commit and the query's own."""
    last = max(int(f.name) for f in (checkpoint / "commits").iterdir() if f.name.isdecimal())
    (checkpoint / "commits" / f"{last}").unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)


def test_a_stream_puts_a_replayed_batch_once_and_a_lost_checkpoint_is_an_error(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    lines(source, "one", 1, 2, 3)
    rows = spark.readStream.text(str(source))

    run_to_the_end(rows, checkpoint, url, sinkId="copy")
    forget_the_last_batch(checkpoint)
    lines(source, "two", 4, 5)
    run_to_the_end(rows, checkpoint, url, sinkId="copy")

    assert put_numbers(url) == [1, 2, 3, 4, 5]
    [entry] = ledger(url)
    metadata = json.loads((checkpoint / "metadata").read_text())
    assert entry["query"] == metadata["id"]

    shutil.rmtree(checkpoint)
    with pytest.raises(StreamingQueryException, match="sinkId 'copy' belongs to another query"):
        run_to_the_end(rows, checkpoint, url, sinkId="copy")
    assert put_numbers(url) == [1, 2, 3, 4, 5]


def test_for_each_batch_with_its_number_puts_each_once_and_refuses_two_writes_of_one_name(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    lines(source, "one", 1, 2, 3, 4)

    def write(rows: DataFrame, batch: int, names: tuple[str, str]) -> None:
        for name, which in zip(names, ("% 2 = 0", "% 2 = 1"), strict=True):
            half = rows.where(f"get_json_object(value, '$.n') {which}")
            half.write.format("localqueue").mode("append").options(
                url=url, queue="jobs", sinkId=name, batchId=str(batch)
            ).save()

    def run(*names: str) -> None:
        one, other = names
        query = (
            spark.readStream.text(str(source))
            .writeStream.foreachBatch(lambda rows, batch: write(rows, batch, (one, other)))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run("even", "odd")
    forget_the_last_batch(checkpoint)
    run("even", "odd")

    assert sorted(put_numbers(url)) == [1, 2, 3, 4]

    lines(source, "two", 5, 6)
    with pytest.raises(StreamingQueryException, match="give each write of a foreachBatch function"):
        run("even", "even")
    assert sorted(put_numbers(url)) == [1, 2, 3, 4, 6]


def test_killed_executors_workers_and_drivers_of_a_cluster_put_each_row_once(
    spark: SparkSession, url: str, tmp_path: Path, store_path: Path
) -> None:
    with PersistentQueue[int]("source", store=url) as source:
        source.put_many(range(6_000))
        source.put_many(range(6_000))
    (tmp_path / "sitecustomize.py").write_text(KILLER)
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    command = [sys.executable, "-m", "tests.spark.write_cluster_program", url, str(tmp_path)]

    with Server(command, env={"PYTHONPATH": path, "KILL_IN_STREAM": "1"}) as program:
        # The program sees the end of its JVM.
        program.wait_for(r"(Answer from Java side is empty|Connection refused)", timeout=280)

    assert put_numbers(url, "restless") == list(range(12_000))
    assert len(messages(url, "copy")) == 10_000

    copy_journal(spark, url, tmp_path)

    copied = put_numbers(url, "copy")
    assert len(copied) == len(set(copied)) == 12_000
    assert copied == sorted(copied)
    assert staged(store_path) == []
