"""What rows become, which are refused, and how queues are written to."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from queue import Full
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException

from localqueue import PersistentQueue, QueueMessage
from localqueue.errors import ConfigurationError, InvalidMessage, StoreCorrupt
from localqueue.spark.options import Options
from localqueue.spark.write import staged_rows
from localqueue.spark.write.json_text import check_texts
from localqueue.spark.write.staging import ObjectFolder
from localqueue.spark.write.writer import StreamWriter
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.spark.writing import (
    batch_writer,
    ledger,
    messages,
    numbers,
    put_numbers,
    run_tasks,
    schema_of,
    staged,
    values,
    write,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")

VALUE = "value string"


def _configure(store_path: Path, queue: str = "jobs", **settings: Any) -> None:
    with SQLiteQueueStore(store_path) as store:
        store.configure(queue, settings, now=0.0)


def _take(url: str, count: int, queue: str = "jobs") -> list[Any]:
    """Get and acknowledge so many."""
    taken = []
    jobs: PersistentQueue[Any]
    with PersistentQueue(queue, store=url) as jobs:
        for _ in range(count):
            message: QueueMessage[Any] = jobs.get_message(timeout=60)
            taken.append(message.value)
            jobs.ack(message)
    return taken


# --- through Spark --------------------------------------------------------------------------------
def test_a_data_frame_of_json_text_becomes_messages_in_its_order(
    spark: SparkSession, url: str, store_path: Path
) -> None:
    rows = spark.range(0, 30, 1, 3).selectExpr("to_json(struct(id AS n)) AS value")

    rows.write.format("localqueue").mode("append").options(url=url, queue="jobs").save()

    assert put_numbers(url) == list(range(30))
    assert messages(url)[0].body == b'{"n":0}'
    assert staged(store_path) == []


def test_columns_without_a_value_make_the_payload(spark: SparkSession, url: str) -> None:
    rows = spark.sql(
        "SELECT 'a' AS queue, 7 AS n, TIMESTAMP'2026-01-31 08:00:00.5Z' AS at, 1.50BD AS price,"
        " named_struct('tags', array('x', null)) AS more"
    )

    rows.write.format("localqueue").mode("append").option("url", url).save()

    [value] = values(url, "a")
    assert value == {
        "n": 7,
        "at": "2026-01-31T08:00:00.500000Z",
        "price": "1.50",
        "more": {"tags": ["x", None]},
    }


def test_a_row_that_is_no_json_fails_the_write_and_nothing_is_put(
    spark: SparkSession, url: str, store_path: Path
) -> None:
    rows = spark.range(0, 20_000, 1, 2).selectExpr(
        "IF(id = 19999, '{oops', to_json(struct(id, repeat('x', 40) AS text))) AS value"
    )

    with pytest.raises(PythonException, match="row 9999 of partition 1 cannot be put"):
        rows.write.format("localqueue").mode("append").options(url=url, queue="jobs").save()

    assert values(url) == []
    assert staged(store_path) == []


def test_a_queue_is_not_overwritten(spark: SparkSession, url: str, store_path: Path) -> None:
    rows = spark.sql("SELECT '1' AS value")

    with pytest.raises(AnalysisException, match="a queue is not overwritten; append"):
        rows.write.format("localqueue").mode("overwrite").options(url=url, queue="jobs").save()

    assert not store_path.exists()


# --- what a row says ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ('{"b": 1, "a": [1.50, null]}', b'{"b": 1, "a": [1.50, null]}'),
        (' "around" \n', b'"around"'),
        ("null", b"null"),
        ('"\\ud83d\\ude00"', b'"\\ud83d\\ude00"'),
        ('"\u00fc\U0001f600"', '"\u00fc\U0001f600"'.encode()),
        ("1e99", b"1e99"),
        ("[" * 100 + "]" * 100, b"[" * 100 + b"]" * 100),
    ],
)
def test_json_text_is_stored_as_it_is(url: str, text: str, stored: bytes) -> None:
    write(url, VALUE, [("1",), (text,), ("2",)])

    assert [message.body for message in messages(url)] == [b"1", stored, b"2"]
    assert values(url)[1] == json.loads(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a value is missing"),
        ("{", "is not JSON"),
        ("1,2", "something follows at character 1"),
        ("1]", "something follows"),
        ("[NaN]", "NaN is not JSON"),
        ("-Infinity", "Infinity is not JSON"),
        ("1e999", "Out of range float"),
        ("9" * 400 + ".5", "Out of range float"),
        ('"\\ud800"', "lone surrogate"),
        ("[" * 101 + "]" * 101, "nested at most 100"),
        ("[" * 50_000, "nested deeper than 100"),
        ('"a\nb"', "control character"),
        ("\u00a01", "a value is missing"),
        (None, "value is null"),
    ],
)
def test_what_is_no_json_value_is_refused_by_its_row(url: str, text: str | None, why: str) -> None:
    with pytest.raises(InvalidMessage, match=f"row 1 of partition 0 cannot be put: .*{why}"):
        write(url, VALUE, [("1",), (text,), ("2",)])

    assert messages(url) == []


def test_texts_that_are_json_only_together_are_refused() -> None:
    for one, other in [("[1", "2]"), ('"a', 'b"'), ('{"a":', "1}")]:
        with pytest.raises(Exception, match="not JSON"):
            check_texts(pa.array([one, other]))


def test_a_value_that_is_too_large_is_refused(url: str) -> None:
    with pytest.raises(InvalidMessage, match=r"row 1 .* at most 16,777,216 fit"):
        write(url, VALUE, [("1",), ('"' + "x" * 16_777_216 + '"',)])


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("bigint", 7, 7),
        ("double", 0.5, 0.5),
        ("boolean", True, True),
        ("decimal(20,3)", Decimal("12345678901234567.250"), "12345678901234567.250"),
        ("date", date(2026, 1, 31), "2026-01-31"),
        ("timestamp", datetime(2026, 1, 31, 8, tzinfo=UTC), "2026-01-31T08:00:00Z"),
        ("timestamp_ntz", datetime(2026, 1, 31, 8, 0, 0, 5), "2026-01-31T08:00:00.000005"),  # noqa: DTZ001
        ("binary", b"\x00\xff", "AP8="),
        ("array<date>", [date(2026, 1, 31), None], ["2026-01-31", None]),
        ("map<string,date>", [("a", date(2026, 1, 31))], {"a": "2026-01-31"}),
        ("map<int,int>", [(1, 2)], {"1": 2}),
        ("struct<a:int,b:decimal(3,1)>", {"a": None, "b": Decimal("0.5")}, {"a": None, "b": "0.5"}),
    ],
)
def test_other_values_have_a_form_in_json(url: str, kind: str, value: Any, stored: Any) -> None:
    write(url, f"value {kind}", [(value,)])
    write(url, f"v {kind}", [(value,), (None,)], queue="columns")

    assert values(url) == [stored]
    assert values(url, "columns") == [{"v": stored}, {"v": None}]


@pytest.mark.parametrize("kind", ["interval day to second", "map<double,int>", "variant"])
def test_a_type_without_a_form_in_json_is_refused_before_any_row(url: str, kind: str) -> None:
    with pytest.raises(ConfigurationError, match="value"):
        batch_writer(url, schema_of(f"value {kind}"), queue="jobs")


def test_infinity_is_refused_by_its_row(url: str) -> None:
    with pytest.raises(InvalidMessage, match=r"row 1 .* Out of range float"):
        write(url, "n double", [(1.0,), (float("inf"),)])


def test_a_row_may_say_all_that_put_takes(url: str, store_path: Path) -> None:
    _configure(store_path, ordering="priority")
    ddl = (
        "value string, headers map<string,string>, priority int, delay double, ttl int,"
        " dedupe_key string"
    )

    write(url, ddl, [("1", None, None, None, None, None), ("2", [("h", "x")], 5, 0.0, 60, "k")])

    first, second = messages(url)
    assert (first.body, first.headers, first.priority) == (b"2", b'{"h":"x"}', 5)
    assert first.expires_at is not None
    assert first.expires_at - first.created_at == pytest.approx(60)
    assert first.dedupe_key == "k"
    assert (second.body, second.headers, second.priority) == (b"1", None, 0)
    assert (second.expires_at, second.dedupe_key) == (None, None)


def test_a_delayed_row_waits(url: str, store_path: Path) -> None:
    write(url, "value string, delay int", [("1", 3600), ("2", None)])

    assert values(url) == [2]
    with SQLiteQueueStore(store_path) as store:
        assert store.stats("jobs", now=time.time()).delayed == 1


def test_a_dedupe_key_is_one_message_until_it_is_gone_and_for_its_window(url: str) -> None:
    for queue, options in (("jobs", {}), ("kept", {"dedupeWindow": "60"})):
        ddl = "value string, dedupe_key string"
        write(url, ddl, [("1", "a"), ("2", "a"), ("3", "b")], queue=queue, **options)
        assert values(url, queue) == [1, 3]
        _take(url, 2, queue)
        write(url, ddl, [("4", "a")], queue=queue, **options)

    assert values(url) == [4]
    assert values(url, "kept") == []


def test_ordering_keys_hold_their_rows_back(url: str, store_path: Path) -> None:
    _configure(store_path, ordering="per-key")

    write(url, "value string, ordering_key string", [("1", "a"), ("2", "a"), ("3", None)])

    assert values(url) == [1, 3]
    _take(url, 1)
    assert values(url) == [3, 2]


def test_rows_name_their_queues(url: str) -> None:
    write(url, "value string, queue string", [("1", "a"), ("2", "b"), ("3", "a")])

    assert (values(url, "a"), values(url, "b")) == ([1, 3], [2])


def test_the_option_names_the_queue_of_all_rows(url: str) -> None:
    write(url, "value string, queue string", [("1", "a"), ("2", "b")], queue="jobs")

    assert values(url) == [1, 2]


@pytest.mark.parametrize(
    ("ddl", "row", "why"),
    [
        ("queue string", (None,), "its queue is null"),
        ("queue string", ("a:b",), "queue name cannot contain"),
        ("priority int", (-1,), "priority cannot be negative"),
        ("priority bigint", (2**31,), "priority cannot be greater"),
        ("delay double", (float("nan"),), "delay must be a finite number"),
        ("delay double", (-0.1,), "delay cannot be negative"),
        ("ttl double", (0.0,), "ttl must be greater than zero"),
        ("ttl double", (1e10,), "ttl cannot be longer"),
        ("dedupe_key string", ("",), "dedupe_key cannot be empty"),
        ("ordering_key string", ("x" * 1001,), "ordering_key is longer"),
        ("headers map<string,string>", ([("a", None)],), "headers must be a mapping"),
    ],
)
def test_what_put_refuses_is_refused_by_its_row(
    url: str, ddl: str, row: tuple[Any, ...], why: str
) -> None:
    good: dict[str, Any] = {"queue string": "jobs", "headers map<string,string>": []}
    with pytest.raises(InvalidMessage, match=f"row 1 of partition 0 cannot be put: {why}"):
        write(url, f"value string, {ddl}", [("1", good.get(ddl)), ("2", *row)])

    assert messages(url) == []


# --- what a data frame must have ------------------------------------------------------------------
@pytest.mark.parametrize(
    ("ddl", "why"),
    [
        ("value string, state string, id string", "columns state, id are neither"),
        ("value string, Value string", "several columns 'value'"),
        ("value string, priority string", "priority must be a whole number, not string"),
        ("value string, headers map<string,int>", "headers must be a map of strings"),
        ("value string, delay decimal(3,1)", "delay must be a number of seconds"),
        ("priority int", "no column value"),
    ],
)
def test_columns_that_make_no_message_are_refused_before_any_row(
    url: str, ddl: str, why: str
) -> None:
    with pytest.raises(ConfigurationError, match=why):
        batch_writer(url, schema_of(ddl), queue="jobs")


def test_rows_need_exactly_one_place_to_go(url: str) -> None:
    schema = schema_of(VALUE)

    with pytest.raises(ConfigurationError, match="where do the rows go"):
        batch_writer(url, schema)
    with pytest.raises(ConfigurationError, match="several are given"):
        batch_writer(url, schema, queue="a,b")


def test_a_batch_needs_a_sink_to_be_numbered_in(url: str) -> None:
    with pytest.raises(ConfigurationError, match="give sinkId as well"):
        batch_writer(url, schema_of(VALUE), queue="jobs", batchId="1")


def test_a_stream_needs_a_checkpoint_that_it_can_read_or_a_name(url: str, tmp_path: Path) -> None:
    schema = schema_of(VALUE)
    for given in ({}, {"checkpointLocation": str(tmp_path / "gone")}):
        options = Options.parse({"url": url, "queue": "jobs", **given})
        with pytest.raises(ConfigurationError, match="give the option sinkId"):
            StreamWriter(options, schema, False)

    named = Options.parse({"url": url, "queue": "jobs", "sinkId": "orders"})
    StreamWriter(named, schema, False)


# --- what a queue takes ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("ddl", "row", "why"),
    [
        ("priority int", (1,), "priority requires PriorityOrdering"),
        ("ordering_key string", ("a",), "ordering_key requires OrderingKeys"),
    ],
)
@pytest.mark.parametrize("sink", [{}, {"sinkId": "s"}])
def test_what_the_queue_refuses_is_found_before_the_first_row_is_put(
    url: str, store_path: Path, ddl: str, row: tuple[Any, ...], why: str, sink: dict[str, str]
) -> None:
    many = [(json.dumps("x" * 100), None)] * 15_000

    with pytest.raises(InvalidMessage, match=f"queue 'jobs': {why}; nothing of this batch was put"):
        write(url, f"value string, {ddl}", many, [("2", *row)], **sink)

    assert messages(url) == []
    assert ledger(url) == []


def test_a_topic_hands_rows_to_all_its_subscribers(url: str, store_path: Path) -> None:
    _configure(store_path, "news", fanout="copy")
    with SQLiteQueueStore(store_path) as store:
        store.subscribe("news", "a", now=0.0)
        store.subscribe("news", "b", now=0.0)

    write(url, VALUE, [("1",), ("2",)], [("3",)], queue="news", sinkId="s")

    assert (values(url, "news.a"), values(url, "news.b")) == ([1, 2, 3], [1, 2, 3])


def test_a_topic_without_subscribers_takes_nothing(url: str, store_path: Path) -> None:
    _configure(store_path, "news", fanout="copy")

    with pytest.raises(InvalidMessage, match="requires configured subscribers"):
        write(url, VALUE, [("1",)], queue="news")


def test_a_full_queue_is_waited_for_in_steps_that_fit(url: str, store_path: Path) -> None:
    _configure(store_path, maxsize=7)
    got: list[Any] = []
    consumer = threading.Thread(target=lambda: got.extend(_take(url, 40)))

    consumer.start()
    write(url, VALUE, numbers(0, 40), sinkId="s")
    consumer.join()

    assert [value["n"] for value in got] == list(range(40))
    [entry] = ledger(url)
    assert (entry["rows"], entry["done"]) == (40, 40)


def test_a_queue_that_stays_full_is_an_error_that_says_how_far_it_is(
    url: str, store_path: Path
) -> None:
    _configure(store_path, maxsize=5)
    options = {"sinkId": "s", "putTimeout": "0.2"}

    with pytest.raises(
        Full, match=r"had no room for 0.2 seconds; 5 of 12 rows are put, the others"
    ):
        write(url, VALUE, numbers(0, 12), **options)

    assert put_numbers(url) == list(range(5))
    assert len(staged(store_path)) == 1
    _take(url, 5)
    with pytest.raises(Full, match="10 of 12 rows are put"):
        write(url, VALUE, numbers(0, 12), **options)
    _take(url, 5)
    write(url, VALUE, numbers(0, 12), **options)

    assert put_numbers(url) == [10, 11]
    assert staged(store_path) == []


def test_a_queue_that_rejects_takes_a_small_batch_whole_or_not(url: str, store_path: Path) -> None:
    _configure(store_path, maxsize=5, overflow="reject")

    with pytest.raises(Full, match="refuses more; nothing of this batch was put"):
        write(url, VALUE, numbers(0, 6), sinkId="s")

    assert messages(url) == []
    write(url, VALUE, numbers(0, 5), sinkId="s")
    assert put_numbers(url) == list(range(5))


# --- rows on their way ----------------------------------------------------------------------------
def test_few_rows_ride_in_the_message_and_many_wait_in_a_file_of_ones_own(
    url: str, store_path: Path
) -> None:
    schema = schema_of(VALUE)
    writer = batch_writer(url, schema, queue="jobs")

    few, many, none = run_tasks(writer, schema, numbers(0, 10), numbers(10, 20_000), [])

    [file] = staged(store_path)
    path = store_path.with_name(f"{store_path.name}-staging") / file
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    writer.commit([few, many, none, None])
    assert put_numbers(url) == list(range(20_000))
    assert not path.parent.exists()


def test_large_rows_are_put_in_transactions_of_bounded_size(url: str) -> None:
    rows = [(json.dumps({"n": n, "text": "x" * 3_000_000}),) for n in range(8)]

    write(url, VALUE, rows, sinkId="s")

    assert put_numbers(url) == list(range(8))


def test_a_task_elsewhere_needs_a_staging_directory_for_many_rows(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_rows, "RIDES_FROM_ELSEWHERE", 1024 * 1024)
    schema = schema_of(VALUE)
    writer = batch_writer(url, schema, queue="jobs")
    writer._rows.boot_id = "another"

    [small] = run_tasks(writer, schema, numbers(0, 1000))
    with pytest.raises(ConfigurationError, match="give stagingDirectory"):
        run_tasks(writer, schema, numbers(0, 20_000))
    writer.commit([small])

    shared = tmp_path / "shared"
    writer = batch_writer(url, schema, queue="shared", stagingDirectory=str(shared))
    writer._rows.boot_id = "another"
    [large] = run_tasks(writer, schema, numbers(0, 20_000))
    assert len(list(shared.iterdir())) == 1
    writer.commit([large])
    assert (len(messages(url)), len(messages(url, "shared"))) == (1000, 20_000)


def test_a_staging_directory_has_an_absolute_path(url: str) -> None:
    with pytest.raises(ConfigurationError, match="write an absolute path"):
        batch_writer(url, schema_of(VALUE), queue="jobs", stagingDirectory="here")


def test_a_staging_directory_may_be_an_object_store(tmp_path: Path) -> None:
    folder = ObjectFolder(pa.fs.LocalFileSystem(), str(tmp_path))
    schema = pa.schema([("body", pa.large_binary())])
    rows = pa.record_batch([pa.array([b"1", b"2"], pa.large_binary())], schema=schema)

    with staged_rows.RowsOut(schema, folder, "a") as out:
        out.to_file()
        out.add(rows)
        file = out.finish()

    assert isinstance(file, staged_rows.StagedFile)
    staged_rows.check_file(folder, file)
    assert [*staged_rows.rows_in_file(folder, file)] == [rows]
    assert folder.names("a") == [file.name]
    folder.remove([file.name, "never there"])
    assert folder.names("") == []

    with pytest.raises(ZeroDivisionError):
        _fail_half_way(staged_rows.RowsOut(schema, folder, "b"))
    assert folder.names("") == []


def _fail_half_way(out: staged_rows.RowsOut) -> None:
    with out:
        out.to_file()
        raise ZeroDivisionError


@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_staged_file_that_is_not_what_was_written_is_refused(
    url: str, store_path: Path, damage: str
) -> None:
    schema = schema_of(VALUE)
    writer = batch_writer(url, schema, queue="jobs", sinkId="s")
    tasks = run_tasks(writer, schema, numbers(0, 20_000))
    [name] = staged(store_path)
    path = store_path.with_name(f"{store_path.name}-staging") / name
    data = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(data[:-8])
        case "changed":
            path.write_bytes(data.replace(b"xxxxxx", b"xxxyxx", 1))
        case "gone":
            path.unlink()

    with pytest.raises(Exception, match=f"staged file {name} is not"):
        writer.commit([*tasks])

    assert messages(url) == []
    assert ledger(url) == []


def test_a_foreign_file_is_not_written_to(url: str, store_path: Path) -> None:
    store_path.write_bytes(b"not a database at all" * 100)

    with pytest.raises(StoreCorrupt):
        write(url, VALUE, [("1",)])

    assert store_path.read_bytes() == b"not a database at all" * 100
