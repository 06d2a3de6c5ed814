"""Compacted topics: a table has the latest value of each key, whatever happens on the way."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from localqueue import Journal, PersistentQueue
from localqueue.cli.app import run
from localqueue.errors import ConfigurationError, InvalidArgument
from localqueue.failpoints import listening
from localqueue.spark.pipeline.compacted import regions
from localqueue.spark.pipeline.compacted.merging import KeyStep
from localqueue.spark.pipeline.compacted.topic import Compacted
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.pipeline import Pipeline
from localqueue.spark.pipeline.places import Feed
from localqueue.spark.pipeline.writing import LakeWriter
from tests.pipeline.journals import HERE, event, journal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRICES = Compacted("prices", "sku", "price")
Shown = pytest.CaptureFixture[str]


class Bringing:
    """Brings made-up events to a lake whose only table beside ``events`` is the topic's."""

    def __init__(self, spark: SparkSession, lake: Lake, topic: Compacted = PRICES) -> None:
        self._spark = spark
        self.writer = LakeWriter(spark, lake, Feed(), (), (KeyStep(topic),))
        self.writer.expect(HERE)

    def __call__(self, *rows: dict[str, Any]) -> int:
        """How many rows more the topic has."""
        _, added = self.writer.write(journal(self._spark, rows))
        return added["latest_prices"]


def put(seq: int, payload: object, queue: str = "prices", **columns: Any) -> dict[str, Any]:
    return event(seq, queue=queue, value=json.dumps(payload), **columns)


def price(seq: int, sku: str, amount: int | None) -> dict[str, Any]:
    return put(seq, {"sku": sku, "price": amount})


def rows(lake: Lake, name: str = "latest_prices") -> list[dict[str, Any]]:
    found = DeltaTable(f"{lake.location.uri}/{name}").to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: row["key"])


def prices(lake: Lake) -> dict[str, Any]:
    """By key; two rows for one key are a failure."""
    found = rows(lake)
    by_key = {row["key"]: json.loads(row["value"]) for row in found}
    assert len(by_key) == len(found)
    return by_key


def files(lake: Lake) -> list[tuple[int, int, str]]:
    """The first and the last slot of each file, and its name."""
    table = lake.table("latest_prices")
    assert table is not None
    listed = table.file_list().select(["min.slot", "max.slot", "path"]).to_pylist()
    return sorted((row["min.slot"], row["max.slot"], row["path"]) for row in listed)


# --- the latest value of each key -----------------------------------------------------------------
def test_the_latest_value_of_a_key_counts_and_null_deletes_it(
    spark: SparkSession, lake: Lake
) -> None:
    bring = Bringing(spark, lake)

    assert bring(price(1, "a", 1), price(2, "b", 2), price(3, "a", 3), price(4, "c", 4)) == 3
    assert prices(lake) == {"a": 3, "b": 2, "c": 4}
    assert bring(price(5, "b", None), price(6, "c", 6), price(7, "d", 7), price(8, "d", None)) == -1
    assert prices(lake) == {"a": 3, "c": 6}
    bring(price(9, "b", 9), price(10, "unknown", None))
    assert prices(lake) == {"a": 3, "b": 9, "c": 6}
    bring(price(11, "a", None), price(12, "b", None), price(13, "c", None))
    assert prices(lake) == {}
    bring(price(14, "a", 14))
    (row,) = rows(lake)
    assert (row["key"], row["value"], row["seq"]) == ("a", "14", 14)
    assert row["message_id"] == price(14, "a", 14)["message_id"]


def test_a_deleted_key_stays_so_when_another_store_brings_an_older_value_later(
    spark: SparkSession, lake: Lake
) -> None:
    bring, other = Bringing(spark, lake), "fedcba9876543210"
    bring(price(5, "a", 5), price(6, "b", 6))
    bring(price(9, "a", None))

    late = [put(n, {"sku": sku, "price": 100}, store=other) for n, sku in enumerate("ab", start=1)]
    bring(*late)

    assert prices(lake) == {"b": 6}
    bring(put(12, {"sku": "a", "price": 12}, store=other))
    assert prices(lake) == {"a": 12, "b": 6}


def test_what_says_nothing_of_a_key_is_not_looked_at(spark: SparkSession, lake: Lake) -> None:
    bring = Bringing(spark, lake)

    written = bring(
        put(1, {"sku": "a", "price": 1}, queue="other"),
        put(2, {"price": 2}),
        put(3, {"sku": None, "price": 3}),
        put(4, {"sku": "d"}),
        put(5, [1, 2]),
        put(6, None),
        event(7, queue="prices"),
        put(8, {"sku": "h", "price": 8}, kind="acked"),
    )

    assert written == 0
    assert prices(lake) == {}


def test_fields_may_be_inside_others_and_keys_of_any_kind(spark: SparkSession, lake: Lake) -> None:
    topic = Compacted("prices", "item.sku", name="latest_prices")
    bring = Bringing(spark, lake, topic)
    payloads = [{"item": {"sku": sku}, "ü": '"'} for sku in ("ä'\"", 7, 7.5, True, [1, {"x": 2}])]

    bring(*(put(seq, payload) for seq, payload in enumerate(payloads, 1)))

    keys = {"ä'\"": 0, "7": 1, "7.5": 2, "true": 3, '[1,{"x":2}]': 4}
    assert prices(lake) == {key: payloads[place] for key, place in keys.items()}


def test_what_is_published_to_a_topic_counts(spark: SparkSession, lake: Lake) -> None:
    Bringing(spark, lake)(put(1, {"sku": "a", "price": 1}, kind="published"))

    assert prices(lake) == {"a": 1}


# --- files ----------------------------------------------------------------------------------------
def test_files_are_cut_as_they_grow_and_each_key_stays_in_one(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions, "LARGEST", 40)
    bring, chance = Bringing(spark, lake), random.Random(5)
    expected: dict[str, int] = {}
    seq = 0
    for keys in (150, 300, 60, 300):
        batch = []
        for _ in range(keys):
            seq += 1
            sku, amount = f"sku-{chance.randrange(400)}", chance.choice([seq, seq, None])
            batch.append(price(seq, sku, amount))
            expected.pop(sku, None)
            if amount is not None:
                expected[sku] = amount
        bring(*batch)

        assert prices(lake) == expected
        found = files(lake)
        assert len(found) >= len(expected) / 80
        assert all(ends < begins for (_, ends, _), (begins, _, _) in itertools.pairwise(found))


def test_a_batch_writes_only_the_files_that_have_its_keys(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions, "LARGEST", 40)
    bring = Bringing(spark, lake)
    bring(*(price(seq, f"sku-{seq}", seq) for seq in range(1, 301)))
    before = {name for _, _, name in files(lake)}
    assert len(before) > 5
    # The one that its file begins with.
    first = {row["slot"]: row["key"] for row in rows(lake)}[files(lake)[3][0]]

    assert bring(price(301, first, 301)) == 0

    assert prices(lake) == {f"sku-{seq}": seq for seq in range(1, 301)} | {first: 301}
    after = {name for _, _, name in files(lake)}
    assert len(before - after) == len(after - before) == 1
    assert bring(event(302, "acked", queue="jobs")) == 0
    assert {name for _, _, name in files(lake)} == after
    assert {name for _, _, name in files(lake)} == after


# --- exactly once ---------------------------------------------------------------------------------
def test_a_batch_that_comes_again_changes_nothing(spark: SparkSession, lake: Lake) -> None:
    bring, other = Bringing(spark, lake), Bringing(spark, lake)
    batch = [price(1, "a", 1), price(2, "b", 2)]
    bring(*batch)
    bring(price(3, "a", None))
    version = DeltaTable(f"{lake.location.uri}/latest_prices").version()

    assert bring(*batch) == 0
    assert other(*batch, price(3, "a", None)) == 0

    assert prices(lake) == {"b": 2}
    assert DeltaTable(f"{lake.location.uri}/latest_prices").version() == version


@pytest.mark.parametrize("point", ["pipeline.before-latest_prices", "pipeline.after-events"])
def test_a_crash_between_the_tables_is_repaired(
    spark: SparkSession, lake: Lake, point: str
) -> None:
    bring = Bringing(spark, lake)
    bring(price(1, "a", 1))

    def crash(reached: str) -> None:
        if reached == point:
            raise InterruptedError("it ends here")

    with pytest.raises(InterruptedError), listening(crash):
        bring(price(2, "a", None), price(3, "b", 3))
    assert prices(lake) == {"a": 1}
    Bringing(spark, lake).writer.catch_up()

    assert prices(lake) == {"b": 3}


def test_a_topic_that_is_added_later_has_what_came_before(spark: SparkSession, lake: Lake) -> None:
    writer = LakeWriter(spark, lake, Feed(), (), ())
    writer.expect(HERE)
    writer.write(journal(spark, [price(1, "a", 1), price(2, "b", 2), price(3, "a", None)]))

    Bringing(spark, lake).writer.catch_up()

    assert prices(lake) == {"b": 2}


def test_two_at_once_lose_nothing(spark: SparkSession, lake: Lake) -> None:
    """The second has read the table when the first commits."""
    first, second = Bringing(spark, lake), Bringing(spark, lake)
    meanwhile = [price(1, "a", 1), price(2, "b", 2)]

    def be_faster(reached: str) -> None:
        if reached == "pipeline.before-latest_prices" and meanwhile:
            batch = list(meanwhile)
            meanwhile.clear()
            first(*batch)

    with listening(be_faster):
        second(price(1, "a", 1), price(2, "b", 2), price(3, "b", None))

    assert prices(lake) == {"a": 1}


# --- what a topic can be --------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"queue": "prices", "key": ""}, "'' is no field"),
        ({"queue": "prices", "key": "a..b"}, "'a..b' is no field"),
        ({"queue": "prices", "key": "sku", "value": "."}, "'.' is no field"),
        ({"queue": "prices", "key": "sku", "name": "events"}, "'events' cannot name a table"),
        ({"queue": "prices", "key": "sku", "name": "a/b"}, "'a/b' cannot name a table"),
        ({"queue": "a:b", "key": "sku"}, "queue name"),
    ],
)
def test_what_cannot_be_a_topic_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises((ConfigurationError, InvalidArgument), match=said):
        Compacted(**given)


def test_the_command_line_writes_it_in_one_word() -> None:
    assert Compacted.parse("prices=sku") == Compacted("prices", "sku")
    assert Compacted.parse("eu.prices=item.sku:price") == Compacted(
        "eu.prices", "item.sku", "price", "latest_eu_prices"
    )
    for text in ("prices", "=sku", "prices=", "prices=:price"):
        with pytest.raises(ConfigurationError, match="is not QUEUE=KEY"):
            Compacted.parse(text)


def test_a_table_that_was_made_for_something_else_is_left_alone(
    spark: SparkSession, url: str, lake: Lake
) -> None:
    Bringing(spark, lake)(price(1, "a", 1))
    with PersistentQueue[Any]("prices", store=url, journal_policy=Journal(payloads=True)) as queue:
        queue.put({"sku": "a", "price": 2})
    strange = f"{lake.location.uri}/strange"
    write_deltalake(strange, pa.table({"x": [1]}))

    for other in (Compacted("prices", "sku"), Compacted("prices", "sku", name="strange")):
        with pytest.raises(ConfigurationError, match="another name, or delete it"):
            Pipeline(url, lake, spark=spark, name=other.name, compacted=[other]).run()

    assert prices(lake) == {"a": 1}
    assert DeltaTable(strange).to_pyarrow_table().to_pydict() == {"x": [1]}


def test_a_queue_that_keeps_no_payloads_or_does_not_come_is_refused(
    spark: SparkSession, url: str, lake: Lake
) -> None:
    with PersistentQueue[Any]("prices", store=url) as queue:
        queue.put({"sku": "a"})

    with pytest.raises(ConfigurationError, match=r"'prices' keeps no payloads.*payloads=True"):
        Pipeline(url, lake, spark=spark, compacted=[PRICES]).run()
    with pytest.raises(ConfigurationError, match="does not bring 'prices', but jobs"):
        Pipeline(url, lake, queues=["jobs"], compacted=[PRICES])
    with pytest.raises(ConfigurationError, match="two tables are called 'latest_prices'"):
        Pipeline(url, lake, compacted=[PRICES, Compacted("prices", "sku")])

    assert not Path(lake.location.uri).exists()


# --- the whole of it ------------------------------------------------------------------------------
def test_a_pipeline_keeps_it_and_sql_and_duckdb_read_it(
    spark: SparkSession, url: str, lake: Lake, capsys: Shown
) -> None:
    duckdb = pytest.importorskip("duckdb")
    extension = pytest.importorskip("duckdb_extension_delta")
    kept = Journal(payloads=True)
    where = lake.location.uri
    with PersistentQueue[Any]("prices", store=url, journal_policy=kept) as queue:
        queue.put_many([{"sku": "a", "price": 1}, {"sku": "b", "price": 2}])
        command = ["pipeline", "run", url, where, "--compacted", "prices=sku:price"]
        assert run(command) == 0
        queue.put_many([{"sku": "a", "price": None}, {"sku": "b", "price": 3}])
        assert run(command) == 0
    capsys.readouterr()

    assert run(["pipeline", "sql", where, "SELECT key, value FROM latest_prices", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"key": "b", "value": "3"}
    [path] = Path(extension.__file__).parent.glob("extensions/*/delta.duckdb_extension")
    db = duckdb.connect()
    db.execute(f"LOAD '{path}'")
    found = db.sql(f"SELECT key, value::INT FROM delta_scan('{where}/latest_prices')").fetchall()
    assert found == [("b", 3)]
