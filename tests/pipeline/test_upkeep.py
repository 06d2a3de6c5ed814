"""Looking after a lake: files that nobody needs go, of every table, and few are left of many."""

from __future__ import annotations

import logging
import os
import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from localqueue.cli.app import run
from localqueue.spark.pipeline.definition import MOMENT, Definition, columns
from localqueue.spark.pipeline.gaps import GAPS
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.parquet_files import write_table
from localqueue.spark.pipeline.places import Feed, Place
from localqueue.spark.pipeline.table import Table
from localqueue.spark.pipeline.upkeep import LARGE, compact, drop_before, vacuum_others
from localqueue.spark.pipeline.writing import LakeWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime.now(UTC)
START = datetime(2026, 1, 31, tzinfo=UTC)
VIEW = Definition(
    name="endings",
    description="As a view of somebody's.",
    schema=columns(("seq", pa.int64()), ("at", MOMENT)),
    statistics=("seq", "at"),
    moment="",
    properties=(("localqueue.view", "materialized view"),),
)


def left_behind(table: Table) -> Path:
    """A file of the table that no commit names, two days old."""
    file = Path(table.location.uri, "part-left-behind.parquet")
    file.write_bytes(b"")
    os.utime(file, (time.time() - 2 * 86_400,) * 2)
    return file


# --- vacuum ---------------------------------------------------------------------------------------
def test_a_pipeline_cleans_up_views_and_gaps_beside_its_own_tables(
    spark: SparkSession, lake: Lake
) -> None:
    writer = LakeWriter(spark, lake, Feed(), (), ())
    tables = [lake.table("events"), lake.create(VIEW), lake.create(GAPS)]
    files = [left_behind(table) for table in tables if table is not None]

    writer.look_after({})

    assert [file.exists() for file in files] == [False, False, False]


def test_a_table_is_cleaned_up_once_a_day(lake: Lake) -> None:
    lake.create(VIEW)
    vacuum_others(lake, (), NOW)
    young = left_behind(lake.create(VIEW))

    vacuum_others(lake, (), NOW)

    assert young.exists()


def test_tables_of_strangers_are_left_alone(lake: Lake) -> None:
    write_deltalake(lake.location.uri + "/theirs", pa.table({"x": [1]}))
    theirs = lake.table("theirs")
    assert theirs is not None
    file = left_behind(theirs)

    vacuum_others(lake, (), NOW)

    assert file.exists()
    assert run(["pipeline", "vacuum", lake.location.uri, "theirs"]) == 1
    assert file.exists()


def test_a_table_that_cannot_be_cleaned_up_is_logged_and_the_others_are_done(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    broken = lake.create(Definition("broken", VIEW.schema, "", (), ""))
    Path(broken.location.uri, "_delta_log", f"{0:020}.json").write_text("{")
    file = left_behind(lake.create(VIEW))

    with caplog.at_level(logging.WARNING, "localqueue.spark"):
        vacuum_others(lake, (), NOW)

    assert "the table broken was not cleaned up" in caplog.text
    assert not file.exists()


def test_the_command_cleans_up_a_view_by_its_name_and_with_all_others(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    view, gaps = left_behind(lake.create(VIEW)), left_behind(lake.create(GAPS))

    assert run(["pipeline", "vacuum", lake.location.uri, "endings"]) == 0
    assert (view.exists(), gaps.exists()) == (False, True)
    assert run(["pipeline", "vacuum", lake.location.uri]) == 0
    assert not gaps.exists()
    assert "endings: 1 files deleted" in capsys.readouterr().out


# --- compaction -----------------------------------------------------------------------------------
def appended(table: Table, seq: int, size: int) -> int:
    """Add a row in a file of about so many bytes; how many it has."""
    text = random.Random(seq).randbytes(size // 2).hex()
    rows = pa.table({"seq": [seq], "text": [text]}, schema=SIZED.schema)
    file = write_table(table.location, rows, SIZED.statistics)
    assert table.append([file], Feed(), {Place("0123456789abcdef", "0"): seq})
    return file.size


SIZED = Definition(
    name="sized",
    description="Rows of any size.",
    schema=columns(("seq", pa.int64()), ("text", pa.string())),
    statistics=("seq",),
    moment="",
)


def sizes(table: Table) -> list[int]:
    found: list[int] = table.file_list().sort_by("min.seq")["size_bytes"].to_pylist()
    return found


def test_files_on_both_sides_of_a_limit_are_joined_all_the_same(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create(SIZED)
    made = [appended(table, n, 400 if n % 2 else 4000) for n in range(1, 13)]
    monkeypatch.setattr("localqueue.spark.pipeline.upkeep.TIERS", (sorted(made)[6], LARGE))

    assert compact(table, SIZED, tiers=True, fewest=7) == 0
    assert compact(table, SIZED, tiers=True, fewest=6) == 11
    assert len(sizes(table)) == 1


def test_one_large_file_is_not_written_anew_for_few_small_ones_around_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create(SIZED)
    made = [appended(table, n, 4000 if n == 3 else 400) for n in range(1, 7)]
    monkeypatch.setattr("localqueue.spark.pipeline.upkeep.TIERS", (made[2], LARGE))

    assert compact(table, SIZED, tiers=True, fewest=4) == 0
    assert compact(table, SIZED, tiers=True, fewest=3) == 2
    assert made[2] in sizes(table)


def test_large_files_are_joined_to_full_ones_though_few_fill_one(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create(SIZED)
    made = [appended(table, n, 4000) for n in range(1, 9)]
    full = 3 * min(made)
    monkeypatch.setattr("localqueue.spark.pipeline.upkeep.LARGE", full)
    monkeypatch.setattr("localqueue.spark.pipeline.upkeep.TIERS", (1, full))

    assert compact(table, SIZED, tiers=True, fewest=6) == 4
    assert len(sizes(table)) == 4
    assert compact(table, SIZED, tiers=True, fewest=6) == 0


DATED = Definition(
    name="dated",
    description="Rows of a store in time.",
    schema=columns(("store", pa.string()), ("seq", pa.int64()), ("at", MOMENT)),
    statistics=("store", "seq", "at"),
    moment="at",
)


def dated(table: Table, seq: int, at: datetime, store: str = "a" * 16) -> None:
    """Add a row in a file of its own."""
    rows = pa.table({"store": [store], "seq": [seq], "at": [at]}, schema=DATED.schema)
    file = write_table(table.location, rows, DATED.statistics)
    assert table.append([file], Feed(), {Place(store, "0"): seq})


def spans(table: Table) -> list[tuple[int, int]]:
    """The first and last seq of each file."""
    files = table.file_list().sort_by([("min.store", "ascending"), ("min.seq", "ascending")])
    return list(zip(files["min.seq"].to_pylist(), files["max.seq"].to_pylist(), strict=True))


def test_files_of_two_days_are_not_joined_so_that_retention_finds_the_older(lake: Lake) -> None:
    table = lake.create(DATED)
    for seq in range(1, 7):
        dated(table, seq, START + timedelta(hours=8 * seq))

    assert compact(table, DATED) == 3

    assert spans(table) == [(1, 2), (3, 5), (6, 6)]
    assert drop_before(table, DATED, START + timedelta(days=1)) == 1
    assert spans(table) == [(3, 5), (6, 6)]


def test_few_files_of_a_day_that_is_over_are_joined_once(lake: Lake) -> None:
    table = lake.create(DATED)
    for seq in range(1, 6):
        dated(table, seq, START + timedelta(hours=8 * seq))
    # Of another store that is not so far yet: its day goes on.
    for seq in (1, 2):
        dated(table, seq, START + timedelta(hours=seq), "b" * 16)

    assert compact(table, DATED, tiers=True, fewest=16) == 1

    assert spans(table) == [(1, 2), (3, 3), (4, 4), (5, 5), (1, 1), (2, 2)]
    assert compact(table, DATED, tiers=True, fewest=16) == 0


def test_files_of_a_view_are_joined_whatever_its_columns_are_called(lake: Lake) -> None:
    odd = Definition("odd", columns(("store", pa.int64())), "", ("store",), "")
    table = lake.create(odd)
    for store in (0, 1, None):
        rows = pa.table({"store": [store]}, schema=odd.schema)
        assert table.append_for([write_table(table.location, rows, odd.statistics)], {"flow": 1})

    assert compact(table, odd, tiers=True, fewest=3) == 2
