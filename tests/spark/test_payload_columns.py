"""Payloads as columns: what fits is there with its type, what does not is told or null."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from localqueue import PersistentQueue
from localqueue.errors import ConfigurationError, PayloadMismatch
from localqueue.spark.payload.schema import payload_names
from localqueue.spark.read.schema import spark_schema
from localqueue.stores.protocol import Put
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.spark.reading import options_of, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINT = StructType([StructField("x", IntegerType()), StructField("y", DoubleType())])


@pytest.fixture
def jobs(store_path: Path) -> Iterator[PersistentQueue[Any]]:
    with PersistentQueue[Any]("jobs", store_path=store_path) as queue:
        yield queue


def described(*fields: StructField) -> str:
    return StructType(list(fields)).json()


def read_field(url: str, kind: DataType, mode: str = "FAILFAST") -> list[Any]:
    schema = described(StructField("f", kind), StructField("_corrupt_record", StringType()))
    return [row["f"] for row in read(url, columns="id", payloadSchema=schema, mode=mode)]


FITTING: list[tuple[DataType, Any, Any]] = [
    (BooleanType(), True, True),
    (ByteType(), -128, -128),
    (ShortType(), 32767, 32767),
    (IntegerType(), 2**31 - 1, 2**31 - 1),
    (LongType(), -(2**63), -(2**63)),
    (FloatType(), 0.5, 0.5),
    (DoubleType(), 3, 3.0),
    (DoubleType(), 2**70, float(2**70)),
    (StringType(), "ä€", "ä€"),
    (DecimalType(10, 2), "12.30", Decimal("12.30")),
    (DecimalType(10, 2), 12.3, Decimal("12.30")),
    (DateType(), "2026-01-31", date(2026, 1, 31)),
    (TimestampType(), "2026-01-31T08:00:00+02:00", datetime(2026, 1, 31, 6, tzinfo=UTC)),
    (TimestampType(), "2026-01-31T08:00:00", datetime(2026, 1, 31, 8, tzinfo=UTC)),
    (TimestampNTZType(), "2026-01-31 08:00:00", datetime(2026, 1, 31, 8)),  # noqa: DTZ001
    (ArrayType(IntegerType()), [1, None, 3], [1, None, 3]),
    (ArrayType(POINT), [{"x": 1}], [{"x": 1, "y": None}]),
    (POINT, {"x": 1, "y": 2, "z": 3}, {"x": 1, "y": 2.0}),
    (MapType(StringType(), LongType()), {"a": 1, "b": None}, [("a", 1), ("b", None)]),
]
UNFIT: list[tuple[DataType, Any, str]] = [
    (BooleanType(), 1, "'f' is 1, not BOOLEAN"),
    (ByteType(), 128, "'f' is 128, not TINYINT"),
    (IntegerType(), 2**31, "not INT"),
    (IntegerType(), 1.0, "'f' is 1.0, not INT"),
    (IntegerType(), True, "'f' is True, not INT"),
    (IntegerType(), "1", "'f' is a string, not INT"),
    (LongType(), 2**63, "not BIGINT"),
    (DoubleType(), "1.5", "'f' is a string, not DOUBLE"),
    (DoubleType(), 10**400, "not DOUBLE"),
    (StringType(), 5, "'f' is 5, not STRING"),
    (StringType(), {"a": 1}, "'f' is an object, not STRING"),
    (DecimalType(4, 2), "123.45", "not DECIMAL"),
    (DecimalType(4, 2), "1.234", "not DECIMAL"),
    (DateType(), "31.1.2026", "'f' is a string, not DATE"),
    (TimestampType(), 5, "not TIMESTAMP"),
    (TimestampNTZType(), "2026-01-31T08:00:00Z", "not TIMESTAMP_NTZ"),
    (ArrayType(IntegerType()), "abc", "'f' is a string, not ARRAY"),
    (ArrayType(IntegerType()), [1, "2"], r"'f\.\[\]' is a string, not INT"),
    (POINT, {"x": [1]}, r"'f\.x' is an array, not INT"),
    (POINT, [1], "'f' is an array, not STRUCT"),
    (MapType(StringType(), LongType()), {"a": "1"}, r"'f\.\[\]' is a string, not BIGINT"),
]


@pytest.mark.parametrize(("kind", "value", "shown"), FITTING, ids=str)
def test_a_value_that_fits_has_the_type_of_the_schema(
    kind: DataType, value: Any, shown: Any, url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put_many([{"f": value, "other": [1]}, {"f": None}, {}])

    assert read_field(url, kind) == [shown, None, None]


@pytest.mark.parametrize(("kind", "value", "words"), UNFIT, ids=str)
def test_a_value_that_does_not_fit_is_told_or_null(
    kind: DataType, value: Any, words: str, url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put({})
    message = jobs.put({"f": value})

    with pytest.raises(PayloadMismatch, match=words) as error:
        read_field(url, kind)
    assert message.id in str(error.value)

    assert read_field(url, kind, mode="PERMISSIVE") == [None, None]


def test_permissive_keeps_what_fits_and_the_text_of_what_does_not(
    url: str, jobs: PersistentQueue[Any]
) -> None:
    values = [{"n": 1, "s": "a"}, {"n": "two", "s": "b"}, 7, None, [{"n": 3}], {"s": 4, "n": 5}]
    jobs.put_many(values)
    schema = described(
        StructField("n", IntegerType()),
        StructField("_corrupt_record", StringType()),
        StructField("s", StringType()),
    )

    rows = read(url, columns="id", payloadSchema=schema, mode="PERMISSIVE")

    texts = [json.dumps(value, separators=(",", ":")) for value in values]
    assert [tuple(row.values())[1:] for row in rows] == [
        (1, None, "a"),
        (None, texts[1], "b"),
        (None, "7", None),
        (None, "null", None),
        (None, texts[4], None),
        (5, texts[5], None),
    ]


def test_a_payload_that_is_no_object_does_not_fit(url: str, jobs: PersistentQueue[Any]) -> None:
    jobs.put([1])

    with pytest.raises(PayloadMismatch, match="it is an array, not an object"):
        read_field(url, IntegerType())


def test_a_field_that_must_be_there_is_told_in_both_modes(
    url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put({"n": None})
    schema = described(StructField("n", IntegerType(), nullable=False))

    for mode in ("FAILFAST", "PERMISSIVE"):
        with pytest.raises(PayloadMismatch, match="NOT NULL"):
            read(url, payloadSchema=schema, mode=mode)


def test_bytes_of_another_codec_have_no_fields(store_path: Path, url: str) -> None:
    with SQLiteQueueStore(store_path) as store:
        store.enqueue_many([Put("q", b"\xff", codec="bytes"), Put("q", b'{"f":1}')], now=1.0)

    assert read_field(url, IntegerType()) == [None, 1]


def test_a_type_that_json_does_not_have_is_refused(url: str, jobs: PersistentQueue[Any]) -> None:
    jobs.put({})

    with pytest.raises(ConfigurationError, match=r"no binary, which the field 'a\.b'"):
        read(
            url,
            payloadSchema=described(StructField("a", StructType([StructField("b", BinaryType())]))),
        )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n INT, name STRING", ["n", "name"]),
        (
            "n: int, `a,b` STRUCT<x: INT, y: ARRAY<INT>>, d DECIMAL(10, 2) NOT NULL",
            ["n", "a,b", "d"],
        ),
        ("struct<n:int,m:map<string,int>>", ["n", "m"]),
        ("n INT COMMENT 'one, two', `b``c` INT", ["n", "b`c"]),
        (described(StructField("n", IntegerType())), ["n"]),
    ],
)
def test_names_of_fields_are_told_without_spark(text: str, names: list[str]) -> None:
    assert payload_names(text) == names


def test_a_field_called_like_a_chosen_column_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="field 'State' is called like a column"):
        spark_schema(options_of(url, payloadSchema="n INT, State STRING"))

    spark_schema(options_of(url, columns="id", payloadSchema="n INT, state STRING"))


def test_what_is_no_schema_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="not the JSON of a schema"):
        spark_schema(options_of(url, payloadSchema='{"type": "struct"}'))
    with pytest.raises(ConfigurationError, match="is not a schema"):
        spark_schema(options_of(url, payloadSchema="n INT, "))


def test_spark_shows_payloads_by_ddl_and_says_what_does_not_fit(
    spark: SparkSession, url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put(
        {"n": 1, "point": {"x": 1, "y": 2.5}, "tags": ["a", "b"], "at": "2026-01-31T00:00:00Z"}
    )
    bad = jobs.put({"n": "one"})
    source = spark.read.format("localqueue").options(
        url=url,
        columns="id,queue",
        payloadSchema="n INT, point STRUCT<x: INT, y: DOUBLE>, tags ARRAY<STRING>, at TIMESTAMP",
    )

    found = source.option("mode", "PERMISSIVE").load()
    assert found.columns == ["id", "queue", "n", "point", "tags", "at"]
    rows = found.orderBy("id").selectExpr("n", "point.y", "tags[1]", "unix_seconds(at)").collect()
    assert [tuple(row) for row in rows] == [(1, 2.5, "b", 1769817600), (None, None, None, None)]
    with pytest.raises(Exception, match=f"payload of {bad.id} does not fit.*'n' is a string"):
        source.option("mode", "FAILFAST").load().collect()
