"""The tables of a lake: commits that happen once, whoever else is writing."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from localqueue.errors import StoreFull, StoreUnsupported
from localqueue.spark.pipeline.data_file import DataFile
from localqueue.spark.pipeline.definition import MOMENT, Definition, columns
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.log_trimming import EVERY, KEPT
from localqueue.spark.pipeline.parquet_files import write_table
from localqueue.spark.pipeline.places import Feed, Place
from localqueue.spark.pipeline.table import Table
from localqueue.spark.pipeline.upkeep import LARGE, compact, drop_before

START = datetime(2026, 1, 31, 8, tzinfo=UTC)
HERE, THERE = Place("0123456789abcdef", "0"), Place("fedcba9876543210", "0")
ALL = Feed()
CHECKPOINT_EVERY = 25
THINGS = Definition(
    name="things",
    description="Things.",
    schema=columns(("seq", pa.int64()), ("at", MOMENT), ("name", pa.string())),
    statistics=("seq", "at"),
    moment="at",
)


def written(table: Table, *seqs: int) -> DataFile:
    """A file with a row for each; a minute lies between two of them."""
    rows = [{"seq": n, "at": START + timedelta(minutes=n), "name": f"n{n}"} for n in seqs]
    return write_table(
        table.location, pa.Table.from_pylist(rows, schema=THINGS.schema), THINGS.statistics
    )


def seqs(lake: Lake) -> list[int]:
    rows = DeltaTable(lake.location.uri + "/things").to_pyarrow_table()
    return sorted(rows["seq"].to_pylist())


def opened(lake: Lake) -> Table:
    table = lake.table("things")
    assert table is not None
    return table


def test_looking_for_a_table_makes_none(lake: Lake) -> None:
    assert lake.table("things") is None

    assert not Path(lake.location.uri).exists()


def test_a_lake_is_shown_without_the_secrets_of_its_place() -> None:
    lake = Lake("az://lake/jobs?sv=1&sig=s3cr3t", {"account_key": "t0pk3y"})

    shown = f"{lake} {lake!r} {lake.location} {lake.location!r} {lake.location / 'events'!r}"

    assert "s3cr3t" not in shown
    assert "t0pk3y" not in shown
    assert "az://lake/jobs?sv=1&sig=***" in shown


def test_a_commit_adds_its_rows_and_moves_the_position_together(lake: Lake) -> None:
    table = lake.create(THINGS)

    assert table.append([written(table, 1, 2)], ALL, {HERE: 2})

    assert seqs(lake) == [1, 2]
    assert opened(lake).positions(ALL, [HERE, THERE]) == {HERE: 2}


def test_positions_of_other_stores_and_of_other_queues_are_their_own(lake: Lake) -> None:
    table = lake.create(THINGS)
    table.append([], ALL, {HERE: 5})
    table.append([], Feed(("a", "b")), {HERE: 3})

    assert table.position(ALL, HERE) == 5
    assert table.position(Feed(("b", "a")), HERE) == 3
    assert table.position(Feed(("a",)), HERE) == 0
    assert table.position(ALL, THERE) == 0


def test_who_commits_second_for_the_same_journal_changes_nothing_and_is_told(lake: Lake) -> None:
    first, second = lake.create(THINGS), opened(lake)
    assert first.append([written(first, 1)], ALL, {HERE: 1})

    assert not second.append([written(second, 1)], ALL, {HERE: 1})

    assert seqs(lake) == [1]
    assert second.position(ALL, HERE) == 1


def test_who_commits_for_another_journal_is_not_disturbed(lake: Lake) -> None:
    first, second = lake.create(THINGS), opened(lake)
    assert first.append([written(first, 1)], ALL, {HERE: 1})

    assert second.append([written(second, 7)], ALL, {THERE: 7})

    assert seqs(lake) == [1, 7]


def test_many_writers_at_once_add_every_row_once(lake: Lake) -> None:
    """Eight threads bring the same twenty rows, in files of one row each."""
    lake.create(THINGS)

    def bring() -> None:
        table = opened(lake)
        while (seq := table.position(ALL, HERE) + 1) <= 20:
            table.append([written(table, seq)], ALL, {HERE: seq})

    threads = [threading.Thread(target=bring) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seqs(lake) == list(range(1, 21))


def test_files_without_such_rows_are_left_out_by_their_bounds(lake: Lake) -> None:
    table = lake.create(THINGS)
    for first in (1, 11, 21):
        table.append([written(table, first, first + 9)], ALL, {HERE: first + 9})

    assert len(table.files()) == 3
    assert len(table.files("seq > 20")) == 1
    assert len(table.files("seq > 30")) == 0
    assert len(table.files("at < '2026-01-31T08:15:00Z'")) == 2


def test_a_bound_of_time_is_never_inside_the_file_that_it_is_of(lake: Lake) -> None:
    table = lake.create(THINGS)
    at = START + timedelta(microseconds=1_999)
    rows = pa.Table.from_pylist([{"seq": 1, "at": at, "name": None}], schema=THINGS.schema)

    file = write_table(table.location, rows, THINGS.statistics)

    assert file.statistics["minValues"]["at"] == "2026-01-31T08:00:00.001Z"
    assert file.statistics["maxValues"]["at"] == "2026-01-31T08:00:00.002Z"


def test_bounds_are_known_of_columns_that_are_far_behind(lake: Lake) -> None:
    """Of all but the first 32 columns most readers look for none, unless the table names them."""
    wide = columns(*((f"c{n}", pa.int64()) for n in range(40)), ("at", MOMENT))
    definition = Definition("wide", wide, "Many columns.", ("c39", "at"), "at")
    table = lake.create(definition)
    row = {f"c{n}": n for n in range(40)} | {"at": START}
    rows = pa.Table.from_pylist([row], schema=wide)
    table.append([write_table(table.location, rows, definition.statistics)], ALL, {HERE: 1})

    assert len(table.files("c39 > 38")) == 1
    assert len(table.files("c39 > 39")) == 0


# --- files in the place of others -----------------------------------------------------------------
def many_files(lake: Lake, n: int = 10) -> Table:
    table = lake.create(THINGS)
    for seq in range(1, n + 1):
        table.append([written(table, seq)], ALL, {HERE: seq})
    return table


def test_compaction_keeps_rows_order_and_positions(lake: Lake) -> None:
    table = many_files(lake)

    assert compact(table, THINGS) == 9

    assert len(opened(lake).files()) == 1
    assert opened(lake).position(ALL, HERE) == 10
    found = DeltaTable(lake.location.uri + "/things").to_pyarrow_table()
    assert found["seq"].to_pylist() == list(range(1, 11))


def test_of_two_compactions_at_once_one_does_nothing(lake: Lake) -> None:
    """The library's own leaves every row twice here."""
    first, second = many_files(lake), opened(lake)
    assert compact(first, THINGS) == 9

    assert compact(second, THINGS) == 0

    assert seqs(lake) == list(range(1, 11))


def test_a_file_that_was_compacted_meanwhile_is_not_replaced(lake: Lake) -> None:
    table, other = many_files(lake, 2), opened(lake)
    old = other.files()
    assert compact(table, THINGS) == 1

    assert not other.rewrite(old, [written(other, 1, 2)], feed=ALL, positions={HERE: 3})

    assert seqs(lake) == [1, 2]
    assert other.position(ALL, HERE) == 2


def test_what_is_appended_during_a_compaction_stays(lake: Lake) -> None:
    table, other = many_files(lake, 3), opened(lake)
    assert other.append([written(other, 4)], ALL, {HERE: 4})

    assert compact(table, THINGS) == 2

    assert seqs(lake) == [1, 2, 3, 4]


def test_files_are_joined_with_others_of_their_size_only(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = many_files(lake, 4)
    compact(table, THINGS)
    large = table.file_list()["size_bytes"].to_pylist()[0] - 1
    for seq in (5, 6, 7):
        table.append([written(table, seq)], ALL, {HERE: seq})
    monkeypatch.setattr("localqueue.spark.pipeline.upkeep.TIERS", (large, LARGE))

    assert compact(table, THINGS, tiers=True, fewest=4) == 0
    assert compact(table, THINGS, tiers=True, fewest=3) == 2


def test_retention_lets_go_of_whole_files_that_are_old(lake: Lake) -> None:
    table = lake.create(THINGS)
    for first in (1, 11, 21):
        table.append([written(table, first, first + 9)], ALL, {HERE: first + 9})

    assert drop_before(table, THINGS, START + timedelta(minutes=15)) == 1

    assert seqs(lake) == [11, 20, 21, 30]
    assert drop_before(table, THINGS, START + timedelta(minutes=15)) == 0


def test_vacuum_takes_what_nobody_committed_and_nothing_that_is_young(lake: Lake) -> None:
    table = many_files(lake, 2)
    orphan = written(table, 99)

    assert table.vacuum(hours=24) == []
    assert table.vacuum(hours=0) == [orphan.path]

    assert seqs(lake) == [1, 2]


# --- the log ----------------------------------------------------------------------------------
def log_of(table: Table) -> list[int]:
    """The versions of the commits that are there."""
    folder = Path(table.location.uri, "_delta_log")
    return sorted(int(file.stem) for file in folder.glob("*.json"))


def test_a_log_stays_short_and_has_all_that_is_needed(lake: Lake) -> None:
    table = lake.create(THINGS)
    for seq in range(1, 6 * EVERY):
        table.append([], ALL, {HERE: seq})
        assert len(log_of(table)) <= KEPT + EVERY + CHECKPOINT_EVERY

    versions = log_of(table)
    assert versions == list(range(versions[0], table.version + 1))
    assert len(versions) >= KEPT
    assert opened(lake).position(ALL, HERE) == table.position(ALL, HERE) == 6 * EVERY - 1


@pytest.mark.parametrize("place", [HERE, THERE], ids=["the same place", "another place"])
def test_one_who_has_slept_through_a_whole_log_sees_the_table_as_it_is(
    lake: Lake, place: Place
) -> None:
    sleeper = lake.create(THINGS)
    table = many_files(lake, KEPT + 2 * EVERY)
    assert log_of(table)[0] > sleeper.version + 1
    file = written(sleeper, 999)

    done = sleeper.append([file], ALL, {place: 999})

    assert sleeper.position(ALL, HERE) == (KEPT + 2 * EVERY)
    assert not done
    assert sleeper.append([file], ALL, {place: 999})
    assert 999 in seqs(lake)
    assert opened(lake).position(ALL, place) == 999


# --- layouts --------------------------------------------------------------------------------------
WIDER = Definition(
    name="things",
    description="Things.",
    schema=THINGS.schema.append(pa.field("colour", pa.string())),
    statistics=("seq", "at"),
    moment="at",
    version=2,
)


def test_a_new_column_is_added_to_a_table_that_is_there(lake: Lake) -> None:
    many_files(lake, 2)

    table = lake.create(WIDER)

    assert table.schema.names == ["seq", "at", "name", "colour"]
    assert table.schema_version == 2
    row = {"seq": 3, "at": START, "name": "n", "colour": "red"}
    file = write_table(table.location, pa.Table.from_pylist([row], schema=WIDER.schema), ("seq",))
    table.append([file], ALL, {HERE: 3})
    assert compact(table, WIDER) == 2
    found = DeltaTable(lake.location.uri + "/things").to_pyarrow_table()
    assert found["colour"].to_pylist() == [None, None, "red"]


def test_two_pipelines_may_add_the_same_column(lake: Lake) -> None:
    lake.create(THINGS)
    first, second = opened(lake), opened(lake)
    first.evolve(WIDER)

    second.evolve(WIDER)

    assert opened(lake).schema.names == ["seq", "at", "name", "colour"]
    assert second.version == first.version


def test_a_table_of_a_newer_release_is_refused_and_left_alone(lake: Lake) -> None:
    version = lake.create(WIDER).version

    with pytest.raises(StoreUnsupported, match="layout 2, and this release writes layout 1"):
        lake.create(THINGS)

    assert opened(lake).version == version


def test_a_table_with_other_types_is_refused(lake: Lake) -> None:
    lake.create(THINGS)
    other = columns(("seq", pa.string()), ("at", MOMENT))

    with pytest.raises(StoreUnsupported, match="the column seq of the table things"):
        lake.create(Definition("things", other, "Others.", ("at",), "at"))


# --- a full disk ----------------------------------------------------------------------------------
FILL = """
import sys, pyarrow as pa
from localqueue.errors import StoreFull
from tests.pipeline.test_lake import ALL, HERE, THINGS, START
from localqueue.spark.pipeline.read_table import read_file
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.log_trimming import EVERY, KEPT
from localqueue.spark.pipeline.parquet_files import write_table
from pathlib import Path
import os
lake = Lake(sys.argv[1])
table, refused = lake.create(THINGS), 0
for seq in range(1, 200):
    try:
        text = os.urandom(100_000).hex()
        rows = pa.Table.from_pylist([{"seq": seq, "at": START, "name": text}], schema=THINGS.schema)
        file = write_table(table.location, rows, ("seq", "at"))
        assert table.append([file], ALL, {HERE: seq})
    except StoreFull as error:
        refused = seq
        assert error.__cause__ is not None
        break
assert refused > 5
again = lake.table("things")
assert again.position(ALL, HERE) == refused - 1, again.position(ALL, HERE)
# Not through a dataset: its threads may still be ending when the process does.
files = [read_file(again.location, name, THINGS.schema) for name in again.files()]
found = [seq for file in files for batch in file for seq in batch["seq"].to_pylist()]
assert sorted(found) == list(range(1, refused))
"""


def test_a_full_disk_is_said_to_be_full_and_what_was_committed_is_intact(tmp_path: Path) -> None:
    mount = 'mount -t tmpfs -o size=2m tmpfs "$0" && exec "$@"'
    small_disk = ["unshare", "-rm", "sh", "-c", mount, str(tmp_path)]
    if subprocess.run([*small_disk, "true"], capture_output=True, check=False).returncode:
        pytest.skip("nothing may be mounted here")

    done = subprocess.run(
        [*small_disk, sys.executable, "-c", FILL, str(tmp_path / "lake")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


def test_a_folder_that_cannot_be_made_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")

    with pytest.raises(StoreUnsupported, match="is a file, and a lake is a folder"):
        Lake(tmp_path / "file")
    with pytest.raises(Exception, match="things") as caught:
        Lake(tmp_path / "file" / "lake").create(THINGS)

    assert caught.type.__module__ == "localqueue.errors"
    assert not issubclass(caught.type, StoreFull)
