"""Tables whose rows are merged: every event counts once, and few files are rewritten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from localqueue.failpoints import listening
from localqueue.spark.pipeline.definition import MOMENT, Definition, columns
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.places import Feed
from localqueue.spark.pipeline.steps import MergeStep
from localqueue.spark.pipeline.writing import LakeWriter
from tests.pipeline.journals import HERE, event, journal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Counting:
    """The events of a task by minute."""

    def __init__(self) -> None:
        self._rows: list[pa.Table] = []

    def add(self, events: pa.RecordBatch) -> None:
        minute = pc.floor_temporal(events["at"], unit="minute")
        ones = pa.array([1] * events.num_rows, pa.int64())
        columns = [events["store"], events["queue"], minute, ones]
        self._rows.append(pa.Table.from_arrays(columns, schema=DEFINITION.schema))

    def result(self) -> pa.Table:
        return pa.concat_tables([DEFINITION.schema.empty_table(), *self._rows])


def merge(news: pa.Table, old: pa.Table) -> pa.Table:
    rows = pa.concat_tables([news, old]).group_by(["store", "queue", "minute"])
    return rows.aggregate([("events", "sum")]).rename_columns(DEFINITION.schema.names)


DEFINITION = Definition(
    name="counts",
    description="Events by minute.",
    schema=columns(
        ("store", pa.string()),
        ("queue", pa.string()),
        ("minute", MOMENT),
        ("events", pa.int64()),
    ),
    statistics=("minute",),
    moment="minute",
)
COUNTS = MergeStep(DEFINITION, "minute", Counting, merge)


def writer(spark: SparkSession, lake: Lake) -> LakeWriter:
    made = LakeWriter(spark, lake, Feed(), (), (COUNTS,))
    made.expect(HERE)
    return made


def counted(lake: Lake) -> dict[int, int]:
    """By minute after the start; two rows for one minute are a failure."""
    rows = DeltaTable(f"{lake.location.uri}/counts").to_pyarrow_table().to_pylist()
    found = {row["minute"].minute: row["events"] for row in rows}
    assert len(found) == len(rows)
    return found


def bring(spark: SparkSession, to: LakeWriter, first: int, last: int) -> None:
    """An event every second: 60 of them in a full minute."""
    to.write(journal(spark, (event(seq) for seq in range(first, last + 1))))


def test_a_minute_that_two_batches_bring_is_one_row(spark: SparkSession, lake: Lake) -> None:
    bringing = writer(spark, lake)

    bring(spark, bringing, 1, 90)
    bring(spark, bringing, 91, 200)

    assert counted(lake) == {0: 59, 1: 60, 2: 60, 3: 21}


def test_only_files_of_minutes_that_the_batch_reaches_are_rewritten(
    spark: SparkSession, lake: Lake
) -> None:
    bringing = writer(spark, lake)
    bring(spark, bringing, 1, 150)
    table = lake.table("counts")
    assert table is not None
    (old,) = table.files("minute < '2026-01-31T08:02:00Z'")

    bring(spark, bringing, 151, 160)

    table.refresh()
    assert old in table.files()
    assert len(table.files()) == 2
    assert counted(lake) == {0: 59, 1: 60, 2: 41}


@pytest.mark.parametrize("point", ["pipeline.after-events", "pipeline.after-counts"])
def test_a_crash_before_or_after_the_merge_counts_nothing_twice(
    spark: SparkSession, lake: Lake, point: str
) -> None:
    bring(spark, writer(spark, lake), 1, 30)

    def crash(reached: str) -> None:
        if reached == point:
            raise InterruptedError

    with pytest.raises(InterruptedError), listening(crash):
        bring(spark, writer(spark, lake), 31, 100)
    repaired = writer(spark, lake)
    repaired.catch_up()
    bring(spark, repaired, 31, 100)

    assert counted(lake) == {0: 59, 1: 41}


def test_two_who_merge_at_once_count_every_event_once(spark: SparkSession, lake: Lake) -> None:
    bring(spark, writer(spark, lake), 1, 30)
    first, second = writer(spark, lake), writer(spark, lake)
    came: list[str] = []

    def interfere(reached: str) -> None:
        if reached == "pipeline.before-counts" and not came:
            came.append(reached)
            bring(spark, first, 31, 50)

    with listening(interfere):
        bring(spark, second, 31, 45)

    assert came
    assert counted(lake) == {0: 50}
