"""The same workers on clusters: Spark standalone, Spark Connect, and a session that is stopped."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localqueue.policies.crash_limit import DEFAULT_CRASH_LIMIT as CRASH_LIMIT
from tests.crash.working import Queue, open_queue
from tests.faults.nursery import environment
from tests.spark.clusters import PATIENCE, Server, connect_server, standalone_cluster
from tests.spark.handlers import notes
from tests.spark.waiting import until
from tests.spark.workers_program import OWN

PROGRAM = str(Path(__file__).parent / "workers_program.py")


@pytest.fixture
def queue(store_path: Path) -> Iterator[Queue]:
    queue = open_queue(str(store_path), "relaxed")
    yield queue
    queue.store.close()


def run(what: str, master: str, *arguments: str) -> list[Any]:
    """What the driver says until it has ended well."""
    with Server([sys.executable, PROGRAM, what, master, *arguments], env=environment()) as driver:
        driver.wait_for(r"^(\{)", timeout=2 * PATIENCE)
    said = [line for line in driver.log if line.startswith(("{", '"'))]
    return [json.loads(line) for line in said]


def test_on_a_cluster_a_message_that_kills_its_executor_is_set_aside(
    queue: Queue, store_path: Path, tmp_path: Path
) -> None:
    diary = tmp_path / "diary"
    jobs: list[dict[str, Any]] = [
        {"n": n, "diary": str(diary), "store": str(store_path)} for n in range(200)
    ]
    jobs[0]["poison"] = True
    queue.put_many(jobs)

    with standalone_cluster(tmp_path) as master:
        [summary] = run("drain", master, str(store_path), "kills_its_executor")

    assert (summary["done"], summary["dead"]) == (199, 1)
    [letter] = queue.dead_letters()
    assert (letter.value["n"], letter.crashes) == (0, CRASH_LIMIT)
    written = notes(diary)
    assert {int(n) for n, *_ in written} == set(range(200))
    # Both executors had their part, and neither has opened the store.
    assert len({pid for _, _, pid, *_ in written}) >= 2
    assert not any("store" in line for line in written)


def test_over_spark_connect_everything_is_the_same(
    queue: Queue, store_path: Path, tmp_path: Path
) -> None:
    diary = tmp_path / "diary"
    jobs: list[dict[str, Any]] = [{"n": n, "diary": str(diary)} for n in range(100)]
    jobs[50]["poison"] = True
    queue.put_many(jobs)

    with connect_server(tmp_path, env=environment()) as url:
        [summary] = run("drain", url, str(store_path), "dies")

    assert (summary["done"], summary["dead"]) == (99, 1)
    [letter] = queue.dead_letters()
    assert (letter.value["n"], letter.crashes) == (50, CRASH_LIMIT)
    assert {int(n) for n, *_ in notes(diary)} == set(range(100))


@pytest.mark.long
def test_in_a_session_of_the_users_own_slow_messages_hold_nobody_and_deaths_are_settled(
    queue: Queue, store_path: Path, tmp_path: Path
) -> None:
    """Two cores, three batches side by side, jobs one after the other, one try for a task."""
    diary, gate, signal = tmp_path / "diary", tmp_path / "gate", tmp_path / "signal"
    waits = {"diary": str(diary), "patience": 10 * PATIENCE}
    slow = waits | {"gate": str(gate)}
    queue.put(slow)
    queue.put_many([{"n": n} for n in range(500)])
    queue.put({"poison": True})
    command = [PROGRAM, "drain", f"{OWN}local[2]", str(store_path), "waits_or_dies"]

    with Server([sys.executable, *command], env=environment()) as driver:
        until(lambda: _numbers(queue) == (0, 1, 1), "the others wait for the slow one")
        poison = queue.put(waits | {"gate": str(signal), "poison": True})
        until(lambda: len(notes(diary)) == 2, "the second poison does not begin")
        queue.put(slow)
        until(lambda: _numbers(queue) == (0, 3, 1), "the second slow one is not leased")
        # It gets the core of the poison. Now both are taken, and nothing else can be run.
        signal.touch()
        until(lambda: _crashes(queue, poison.id) == 1, "the death waits for a core")
        assert not gate.exists()
        until(lambda: len(notes(diary)) == 3, "the second slow one does not begin")
        gate.touch()
        summary = json.loads(driver.wait_for(r"^(\{.*)"))

    assert (summary["done"], summary["dead"]) == (502, 2)


def _numbers(queue: Queue) -> tuple[int, int, int]:
    stats = queue.stats()
    return stats.ready, stats.inflight, stats.dead


def _crashes(queue: Queue, id: str) -> int:
    message = queue.inspect(id)
    assert message is not None
    return message.crashes


def test_when_spark_is_stopped_the_worker_says_so_and_everything_goes_back(
    queue: Queue, store_path: Path, tmp_path: Path
) -> None:
    diary = tmp_path / "diary"
    queue.put_many([{"gate": str(tmp_path / "never"), "diary": str(diary)}] * 10)

    [error, summary] = run("stop_spark", "local[2]", str(store_path), str(diary))

    assert "Spark runs no jobs any more" in error
    assert summary["released"] == 2
    assert (queue.stats().ready, queue.stats().inflight) == (10, 0)
    assert all((m.failures, m.crashes) == (0, 0) for m in queue.peek(10))
