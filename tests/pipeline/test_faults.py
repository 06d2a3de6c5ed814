"""What happens to a pipeline that it cannot help: it ends with an error, or goes on, or both."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from localqueue import PersistentQueue
from localqueue.errors import JournalForeign, StoreUnsupported
from localqueue.failpoints import listening
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.pipeline import Pipeline
from localqueue.spark.pipeline.table import SCHEMA_VERSION
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.faults.nursery import environment
from tests.pipeline.reckoning import journal_of, reckon, rows_of
from tests.pipeline.working import open_queue, work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("events", "attempts", "messages", "minutes", "errors")
POINTS = [
    "batch",
    *(f"{when}-{table}" for table in TABLES for when in ("before", "after")),
    "after-batch",
]


@pytest.fixture
def queue(url: str) -> Iterator[PersistentQueue[Any]]:
    with open_queue(url) as queue:
        yield queue


def test_a_crash_between_any_two_tables_is_put_right_by_the_next_run(
    spark: SparkSession, url: str, lake: Lake, queue: PersistentQueue[Any]
) -> None:
    """Each run but the last one ends at another point, some of them without a checkpoint then."""

    def crash(at: str) -> None:
        if at == f"pipeline.{point}":
            raise InterruptedError(f"the driver ends at {point}")

    for number, point in enumerate(POINTS):
        work(queue, 7)
        with pytest.raises(Exception, match=f"ends at {point}"), listening(crash):
            Pipeline(url, lake, spark=spark).run()
        if number % 3 == 2:
            # There is none when it ended before the query began, with what the last one had left.
            shutil.rmtree(Path(lake.location.uri, "_checkpoints"), ignore_errors=True)
    work(queue, 7)
    Pipeline(url, lake, spark=spark, rows_per_batch=13).run()

    reckon(lake, queue)


def test_a_table_of_a_newer_release_is_refused_before_anything_is_written(
    spark: SparkSession, url: str, lake: Lake, queue: PersistentQueue[Any]
) -> None:
    work(queue, 5)
    Pipeline(url, lake, spark=spark).run()
    table = lake.table("errors")
    assert table is not None
    table.set_property(SCHEMA_VERSION, "99")
    work(queue, 5)
    before = versions(lake)

    with pytest.raises(StoreUnsupported, match=r"table errors .* has layout 99"):
        Pipeline(url, lake, spark=spark).run()

    assert versions(lake) == before


def versions(lake: Lake) -> list[int]:
    found = [lake.table(name) for name in TABLES]
    return [table.version for table in found if table is not None]


def test_a_restored_backup_is_an_error_and_under_another_name_only_what_is_new_comes(
    spark: SparkSession, url: str, store_path: Path, lake: Lake
) -> None:
    with open_queue(url) as queue:
        work(queue, 8)
        assert isinstance(queue.store, SQLiteQueueStore)
        queue.store.backup(f"{store_path}.backup")
        saved = len(list(journal_of(queue)))
        work(queue, 8)
        Pipeline(url, lake, spark=spark).run()
        lost = rows_of(lake, "events")
    restore(store_path)
    with open_queue(url) as queue:
        work(queue, 3)

        with pytest.raises(JournalForeign):
            Pipeline(url, lake, spark=spark).run()
        assert rows_of(lake, "events") == lost
        for _ in range(2):
            Pipeline(url, lake, name="restored", spark=spark).run()

        events = rows_of(lake, "events")
        stores = {event["store"] for event in lost}
        assert [e for e in events if e["store"] in stores] == lost
        news = [e["position"] for e in events if e["store"] not in stores]
        assert news == [e.position for e in journal_of(queue)][saved:]
        assert len({e["position"] for e in events}) == len(events)


def restore(path: Path) -> None:
    """As the docs have it: every file of the store goes, and the backup takes its place."""
    for file in path.parent.glob(f"{path.name}*"):
        if file.suffix != ".backup":
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    shutil.copy(f"{path}.backup", path)


# --- a full disk ----------------------------------------------------------------------------------
FULL = """
import os, subprocess, sys
import localqueue.spark
from localqueue.errors import StoreFull
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.pipeline import Pipeline
from tests.pipeline.reckoning import reckon
from tests.pipeline.working import open_queue, work
url, disk = sys.argv[1:]
lake = Lake(disk + "/lake")
spark = localqueue.spark.session("local[1]", config={"spark.driver.memory": "512m"})
queue = open_queue(url)
work(queue, 20)
Pipeline(url, lake, spark=spark).run()
reckon(lake, queue)
queue.put_many([os.urandom(20_000).hex() for _ in range(100)])
for _ in range(2):
    try:
        Pipeline(url, lake, spark=spark).run()
    except StoreFull as error:
        assert "what was committed is intact" in str(error), error
    else:
        raise AssertionError("it is not full")
subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
Pipeline(url, lake, spark=spark).run()
reckon(lake, queue)
spark.stop()
"""


def test_a_full_disk_ends_a_run_and_the_next_one_goes_on_when_there_is_room(
    url: str, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"'
    small_disk = ["unshare", "-rm", "sh", "-c", mount, str(disk)]
    if subprocess.run([*small_disk, "true"], capture_output=True, check=False).returncode:
        pytest.skip("nothing may be mounted here")

    done = subprocess.run(
        [*small_disk, sys.executable, "-c", FULL, url, str(disk)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )

    assert done.returncode == 0, done.stderr
