"""Filters that the store answers choose the same rows as Spark would."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.types import StructType

from localqueue import PersistentQueue
from localqueue.errors import ConfigurationError
from localqueue.spark.data_source import LocalQueueSource
from localqueue.spark.read.schema import MESSAGE_COLUMNS
from localqueue.spark.read.where import parse_where
from tests.spark.full_store import fill
from tests.spark.reading import Row, options_of, plan, read, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGE_FILTERS = (
    "queue", "state", "codec", "priority", "ordering_key", "dedupe_key", "attempts", "failures",
    "crashes", "leased_by", "created_at", "available_at", "expires_at", "leased_until", "failed_at",
)  # fmt: skip
JOURNAL_FILTERS = (
    "seq", "shard", "at", "queue", "kind", "from_state", "to_state", "n", "attempt", "worker", "by",
    "error_type", "error_text", "fingerprint", "enqueued_at", "leased_at", "waited",
)  # fmt: skip
SIGNS: tuple[Callable[[tuple[str, ...], Any], Filter], ...] = (
    EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual,
)  # fmt: skip
COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda a, b: bool(a == b),
    GreaterThan: lambda a, b: bool(a > b),
    GreaterThanOrEqual: lambda a, b: bool(a >= b),
    LessThan: lambda a, b: bool(a < b),
    LessThanOrEqual: lambda a, b: bool(a <= b),
    StringStartsWith: lambda a, b: str(a).encode().startswith(str(b).encode()),
}
ROUNDS = 60


@pytest.mark.parametrize(
    ("content", "columns", "seed"),
    [
        ("messages", MESSAGE_FILTERS, 1),
        ("messages", MESSAGE_FILTERS, 3),
        ("dead_letters", MESSAGE_FILTERS, 3),
        ("journal", JOURNAL_FILTERS, 1),
    ],
)
def test_any_filters_choose_the_rows_of_which_they_are_true(
    content: str, columns: tuple[str, ...], seed: int, store_path: Path, url: str
) -> None:
    store, _ = fill(store_path, seed)
    store.close()
    options = options_of(url, content=content)
    rows = rows_of(plan(options))
    choice = random.Random(seed)
    chosen = 0

    for _ in range(ROUNDS):
        filters = [_any_filter(choice, rows, columns) for _ in range(choice.choice((1, 1, 2, 3)))]

        found = rows_of(plan(options, filters))

        expected = [row for row in rows if all(_is_true(one, row) for one in filters)]
        assert sorted(map(repr, found)) == sorted(map(repr, expected)), filters
        chosen += 0 < len(expected) < len(rows)

    # Most of them must choose something, or nothing was compared.
    assert chosen > ROUNDS / 8


def _any_filter(choice: random.Random, rows: list[Row], columns: tuple[str, ...]) -> Filter:
    column = choice.choice(columns)
    made = _filter_on(choice, column, [row[column] for row in rows if row[column] is not None])
    return Not(made) if choice.random() < 0.25 else made


def _filter_on(choice: random.Random, column: str, values: list[Any]) -> Filter:
    path = (column,)
    if not values or choice.random() < 0.15:
        return choice.choice((IsNull(path), IsNotNull(path)))
    value = choice.choice(values)
    what = choice.random()
    if what < 0.15:
        return In(path, tuple(choice.choices(values, k=choice.randrange(1, 4))))
    if what < 0.35 and isinstance(value, str):
        return StringStartsWith(path, value[: choice.randrange(len(value) + 1)])
    if choice.random() < 0.3:
        value = _near(choice, value)
    if what < 0.4:
        return EqualNullSafe(path, value)
    return choice.choice(SIGNS)(path, value)


def _near(choice: random.Random, value: Any) -> Any:
    """A value that may not be there."""
    match value:
        case datetime():
            return value + timedelta(microseconds=choice.choice((-1, 1, 500_000)))
        case int():
            return value + choice.choice((-1, 1))
        case float():
            return value * choice.choice((0.5, 1.5))
    return value + choice.choice(("", "x", "'", "\x00"))


def _is_true(given: Filter, row: Row) -> bool | None:
    """As Spark has it: None is neither true nor false."""
    if isinstance(given, Not):
        inner = _is_true(given.child, row)
        return None if inner is None else not inner
    (column,) = given.attribute  # type: ignore[attr-defined]
    value = row[column]
    match given:
        case IsNull():
            return value is None
        case IsNotNull():
            return value is not None
        case EqualNullSafe(value=other):
            return bool(value == other)
    if value is None:
        return None
    match given:
        case In(value=others):
            return value in others
    return COMPARISONS[type(given)](value, given.value)  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", [1, 3])
def test_a_message_is_found_by_its_id_wherever_it_is(seed: int, store_path: Path, url: str) -> None:
    store, _ = fill(store_path, seed)
    store.close()
    rows = read(url)

    for row in rows[::7]:
        same = [other for other in rows if other["id"] == row["id"]]
        found = read(url, [EqualTo(("id",), row["id"])])
        assert sorted(map(repr, found)) == sorted(map(repr, same))
    several = [row["id"] for row in rows[::5]]
    found = read(url, [In(("id",), (*several, "nobody", "f" * 32, "'"))])
    assert sorted(map(repr, found)) == sorted(repr(r) for r in rows if r["id"] in several)
    assert read(url, [EqualTo(("id",), "nobody")]) == []


def test_an_event_is_found_by_its_position_and_by_its_message(store_path: Path, url: str) -> None:
    store, _ = fill(store_path, 1)
    store.close()
    rows = read(url, content="journal")

    for row in rows[::97]:
        assert read(url, [EqualTo(("position",), row["position"])], content="journal") == [row]
        life = [one for one in rows if one["message_id"] == row["message_id"] is not None]
        if life:
            found = read(url, [EqualTo(("message_id",), row["message_id"])], content="journal")
            assert found == life


@pytest.mark.parametrize(
    "given",
    [
        EqualTo(("value",), '{"a":1}'),
        EqualTo(("headers", "h"), "1"),
        StringEndsWith(("dedupe_key",), "x"),
        StringContains(("dedupe_key",), "x"),
        Not(EqualTo(("id",), "0" * 32)),
        GreaterThan(("id",), "0" * 32),
        EqualTo(("created_at",), datetime(2026, 1, 1)),  # noqa: DTZ001 - of no time zone
        In(("attempts",), tuple(range(2000))),
        EqualTo(("priority",), 1.5),
    ],
    ids=str,
)
def test_what_the_store_cannot_answer_exactly_is_refused(
    given: Filter, url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put({"a": 1})

    with pytest.raises(ConfigurationError, match="cannot answer"):
        plan(options_of(url), [given])


@pytest.fixture
def jobs(store_path: Path) -> Iterator[PersistentQueue[Any]]:
    with PersistentQueue[Any]("jobs", store_path=store_path) as queue:
        yield queue


def test_only_the_rows_that_are_asked_for_are_looked_at(
    store_path: Path, url: str, jobs: PersistentQueue[Any]
) -> None:
    ids = [message.id for message in jobs.put_many(list(range(2000)))]
    for _ in range(3):
        jobs.dead_letter(jobs.get_message())

    questions: dict[str, tuple[list[Filter], dict[str, str]]] = {
        "SEARCH m USING INDEX message_dead": ([EqualTo(("state",), "dead")], {}),
        "INDEX message_dead": ([], {"content": "dead_letters"}),
        "SEARCH m USING INDEX message_lease": ([EqualTo(("state",), "inflight")], {}),
        "MULTI-INDEX OR": ([EqualTo(("id",), ids[1000])], {}),
        "SEARCH e USING INTEGER PRIMARY KEY": (
            [GreaterThan(("seq",), 1990), LessThanOrEqual(("seq",), 1995)], {"content": "journal"}
        ),
    }  # fmt: skip
    for words, (filters, rest) in questions.items():
        tasks = plan(options_of(url, **rest), filters)

        steps, looked_at = steps_of(store_path, tasks)

        assert words in steps
        assert looked_at < 100, words
    _, all_of_them = steps_of(store_path, plan(options_of(url)))
    assert all_of_them > 500


def steps_of(path: Path, tasks: list[Any]) -> tuple[str, int]:
    """How SQLite runs the statements of these tasks, and about how many rows it goes through."""
    shown, ticks = [], 0

    def tick() -> int:
        nonlocal ticks
        ticks += 1
        return 0

    with closing(sqlite3.connect(path)) as db:
        for task in tasks:
            for span in task.spans:
                for ends in span.ranges:
                    for table, where in span.tables:
                        select = table.select(["id"], where, ends)
                        rows = db.execute(f"EXPLAIN QUERY PLAN {select}").fetchall()
                        shown.append("; ".join(row[3] for row in rows))
                        # Ten instructions are at most a few rows.
                        db.set_progress_handler(tick, 10)
                        db.execute(select).fetchall()
                        db.set_progress_handler(None, 0)
    return " | ".join(shown), ticks


# --- the option where -----------------------------------------------------------------------------
PATH = ("priority",)
SPOKEN: dict[str, list[Filter]] = {
    "state = 'dead'": [EqualTo(("state",), "dead")],
    "priority >= 3 and priority<5": [GreaterThanOrEqual(PATH, 3), LessThan(PATH, 5)],
    "priority IN (1, -2)": [In(PATH, (1, -2))],
    "priority NOT IN (1)": [Not(In(PATH, (1,)))],
    "NOT priority = 1 AND (`state` <> 'a''b')": [
        Not(EqualTo(PATH, 1)), Not(EqualTo(("state",), "a'b")),
    ],
    "leased_by IS NULL AND failed_at is not null": [
        IsNull(("leased_by",)), IsNotNull(("failed_at",)),
    ],
    "dedupe_key LIKE 'order%'": [StringStartsWith(("dedupe_key",), "order")],
    "created_at BETWEEN '2026-01-31' AND timestamp '2026-01-31T08:00:00+01:00'": [
        GreaterThanOrEqual(("created_at",), datetime(2026, 1, 31, tzinfo=UTC)),
        LessThanOrEqual(("created_at",), datetime(2026, 1, 31, 7, tzinfo=UTC)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("text", SPOKEN)
def test_where_is_read_as_sql(text: str) -> None:
    assert parse_where(text, MESSAGE_COLUMNS) == SPOKEN[text]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("colour = 'red'", "'colour', which is no column; there are id, queue"),
        ("state = 'dead' OR priority = 1", "has OR"),
        ("state = dead", "'dead', which is no string"),
        ("priority = 'high'", "which is no int to compare priority with"),
        ("priority = 1.5", "which is no int"),
        ("created_at > 'yesterday'", "which is no timestamp"),
        ("created_at > 5", "which is no timestamp"),
        ("dedupe_key LIKE '%x'", "only LIKE 'start%'"),
        ("dedupe_key LIKE 'a_b%'", "only LIKE 'start%'"),
        ("state", "where =, IN or the like should be"),
        ("state = 'dead' priority = 1", "'priority', where AND or the end should be"),
        ("state IN ('a'", "where \\) should be"),
        ("state = 'dead' AND ;", "has ';'"),
        ("NOT priority BETWEEN 1 AND 2", "NOT before BETWEEN"),
        ("value = '1'", "cannot answer"),
    ],
)
def test_where_that_cannot_be_read_says_what_is_wrong(
    text: str, words: str, url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put(1)

    with pytest.raises(ConfigurationError, match=words):
        read(url, where=text)


def test_where_chooses_by_columns_that_are_not_shown(url: str, jobs: PersistentQueue[Any]) -> None:
    jobs.put_many([1, 2, 3])
    jobs.dead_letter(jobs.get_message())

    assert read(url, columns="value", where="state = 'dead'") == [{"value": "1"}]
    assert len(read(url, content="journal", where="kind = 'enqueued'")) == 3


def test_spark_gives_every_use_of_a_dataframe_its_own_rows(
    spark: SparkSession, url: str, jobs: PersistentQueue[Any]
) -> None:
    jobs.put_many(list(range(10)))
    for _ in range(3):
        jobs.dead_letter(jobs.get_message())
    source = spark.read.format("localqueue").options(url=url, columns="id,state")
    rows, chosen = source.load(), source.option("where", "state = 'dead'").load()

    dead, ready = rows.where("state = 'dead'"), rows.where("state = 'ready'")

    assert [dead.count(), rows.count(), ready.count(), chosen.count()] == [3, 10, 7, 3]
    assert dead.unionAll(ready).unionAll(rows).unionAll(chosen).count() == 23


@pytest.mark.parametrize("rest", [{}, {"content": "dead_letters"}, {"lease": "true"}])
def test_a_stream_of_messages_refuses_where(rest: dict[str, str], url: str) -> None:
    source = LocalQueueSource({"url": url, "where": "state = 'dead'", **rest})

    with pytest.raises(ConfigurationError, match="cannot be filtered by the store"):
        source.streamReader(StructType())
