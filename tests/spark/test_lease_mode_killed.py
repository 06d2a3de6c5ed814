"""Lease mode loses nothing whenever it dies; a sink that is keyed by id has nothing twice."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from localqueue import PersistentQueue
from localqueue.spark.leadership import leader_file
from localqueue.spark.lease.leased_stream import liveness_of
from localqueue.stores.open import open_store
from tests.spark.clusters import Server
from tests.spark.lease_mode_program import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = str(Path(__file__).parent / "lease_mode_program.py")
NAMES = ("kept", "lost")
EVERYTHING = range(60)


@pytest.fixture
def queues(url: str) -> Iterator[list[PersistentQueue[int]]]:
    """Two that hold the same values; the stream of the second one loses its checkpoint."""
    with ExitStack() as opened:
        queues = [opened.enter_context(PersistentQueue[int](name, store=url)) for name in NAMES]
        for queue in queues:
            queue.put_many(EVERYTHING)
        yield queues


def in_the_sink(folder: Path, queue: PersistentQueue[int]) -> list[int]:
    sink = folder / queue.name
    return [int(file.read_text()) for file in sink.iterdir() if not file.name.startswith(".")]


def in_the_queue(url: str, queue: PersistentQueue[int]) -> set[int]:
    with closing(open_store(url)) as store:
        held = store.leased_under(liveness_of(f"copy of {queue.name}", queue.name), queue.name)
        waiting = store.peek(queue.name, len(EVERYTHING), now=0.0)
    return {int(message.body) for message in (*held, *waiting)}


def killed_at_any_moment(server: Server, *, whole: bool) -> None:
    """The driver, and its Python processes with it or a moment later by themselves."""
    jvm = int(server.wait_for(r"^jvm (\d+)"))
    while not all(any(f" of {name}" in line for line in server.log) for name in NAMES):
        server.wait_for(r"^(batch) ")
    for _ in range(random.randrange(4)):
        server.wait_for(r"^(batch) ")
    time.sleep(random.uniform(0.0, 0.3))
    if whole:
        os.killpg(server.pid, signal.SIGKILL)
    else:
        os.kill(jvm, signal.SIGKILL)


def process_beside_the_driver(url: str, name: str) -> int:
    """The one that leads the stream, once it does."""
    path = leader_file(Path(f"{url.removeprefix('sqlite:///')}-run"), name)
    for _ in range(6000):
        with suppress(FileNotFoundError, ValueError):
            leader = int(path.read_text())
            # A killed one has left its number there, which may be anybody's by now.
            if b"streaming_source" in Path(f"/proc/{leader}/cmdline").read_bytes():
                return leader
        time.sleep(0.01)
    raise AssertionError(f"nobody leads {name!r}")


def test_a_killed_driver_loses_nothing_with_its_checkpoint_or_without(
    spark: SparkSession, queues: list[PersistentQueue[int]], url: str, tmp_path: Path
) -> None:
    for whole in (True, False):
        command = [sys.executable, PROGRAM, url, str(tmp_path), *NAMES]
        with Server(command) as driver:
            killed_at_any_moment(driver, whole=whole)
        shutil.rmtree(tmp_path / "lost.checkpoint")
        for queue in queues:
            there = {*in_the_sink(tmp_path, queue)} | in_the_queue(url, queue)
            assert sorted(there) == list(EVERYTHING)

    for query in [start(spark, url, tmp_path, each.name, available_now=True) for each in queues]:
        query.awaitTermination()

    for queue in queues:
        assert sorted(in_the_sink(tmp_path, queue)) == list(EVERYTHING)
        assert queue.stats().total == 0


def test_a_killed_process_beside_the_driver_loses_nothing(
    spark: SparkSession, queues: list[PersistentQueue[int]], url: str, tmp_path: Path
) -> None:
    [queue, _] = queues
    query = start(spark, url, tmp_path, queue.name)
    leader = process_beside_the_driver(url, f"copy of {queue.name}")
    time.sleep(random.uniform(0.0, 1.5))
    os.kill(leader, signal.SIGKILL)
    with pytest.raises(StreamingQueryException):
        query.awaitTermination()
    assert {*in_the_sink(tmp_path, queue)} | in_the_queue(url, queue) == {*EVERYTHING}

    query = start(spark, url, tmp_path, queue.name, available_now=True)
    query.awaitTermination()

    assert sorted(in_the_sink(tmp_path, queue)) == list(EVERYTHING)
    assert queue.stats().total == 0
