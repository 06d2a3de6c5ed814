"""Alerts of a real query over a real store: each stuck message is told of once, whatever ends."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from localqueue import PersistentQueue
from localqueue.errors import ConfigurationError, StoreMissing
from localqueue.spark.leadership import Leadership
from localqueue.spark.pipeline.alerts import AlertBatch, StuckAlerts
from tests.pipeline.alerts_program import LIMIT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0


@pytest.fixture
def jobs(url: str) -> PersistentQueue[Any]:
    """A queue that has been used, and is empty."""
    queue = PersistentQueue[Any]("jobs", store=url)
    queue.put("first")
    queue.ack(queue.get_message())
    return queue


@pytest.fixture
def alerts(url: str) -> PersistentQueue[Any]:
    return PersistentQueue("alerts", store=url)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


class Watch:
    """Alerts in a thread of their own, and its batches."""

    def __init__(self, stuck: StuckAlerts) -> None:
        self._stuck = stuck
        self._batches = threading.Condition()
        self._done = 0
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._stuck.run(every=0.1, on_batch=self._count)
        except BaseException as error:
            self._error = error
            with self._batches:
                self._batches.notify_all()

    def _count(self, batch: AlertBatch) -> None:
        with self._batches:
            self._done += 1
            self._batches.notify_all()

    def rest(self) -> None:
        """Until a batch is over that began after now."""
        with self._batches:
            wanted = self._done + 2
            assert self._batches.wait_for(lambda: self._done >= wanted or self._error, PATIENCE)
        if self._error is not None:
            raise self._error

    @property
    def rows_of_state(self) -> int:
        assert self._stuck._query is not None
        progress: Any = self._stuck._query.lastProgress
        return int(progress["stateOperators"][0]["numRowsTotal"])


@contextmanager
def watching(stuck: StuckAlerts) -> Iterator[Watch]:
    watch = Watch(stuck)
    watch._thread.start()
    try:
        watch.rest()
        yield watch
    finally:
        stuck.stop()
        watch._thread.join(PATIENCE)


def told(alerts: PersistentQueue[Any]) -> Counter[tuple[str, str, int]]:
    """All alerts that were ever put."""
    found = [message.value for message in alerts.peek(10_000)]
    return Counter((a["message_id"], a["stage"], a["attempt"]) for a in found)


def test_messages_that_are_stuck_are_told_of_while_they_are(
    spark: SparkSession, url: str, checkpoint: Path, jobs: Any, alerts: Any
) -> None:
    before = jobs.put("before the query")
    stuck = StuckAlerts(
        url, "alerts", checkpoint=checkpoint, waiting={"jobs": 0.2}, running={"jobs": 0.3},
        spark=spark,
    )  # fmt: skip
    with watching(stuck) as watch:
        first = alerts.get(timeout=PATIENCE)
        assert first["message_id"] == before.id
        later = jobs.put("while it runs")
        second = alerts.get(timeout=PATIENCE)
        assert (second["message_id"], second["stage"]) == (later.id, "waiting")

        held = jobs.get_message(leased_by="worker-1")
        third = alerts.get(timeout=PATIENCE)
        for message in (held, jobs.get_message()):
            jobs.ack(message)
        watch.rest()
        watch.rest()

        assert watch.rows_of_state == 0
    assert third["message_id"] == held.id
    assert third["queue"] == "jobs"
    assert third["stage"] == "running"
    assert third["attempt"] == 1
    assert third["worker"] == "worker-1"
    assert third["limit"] == 0.3
    assert third["seconds"] >= 0.3
    assert third["ended"] is False
    assert alerts.empty()


def test_a_query_that_was_ended_goes_on_with_what_it_knew(
    spark: SparkSession, url: str, checkpoint: Path, jobs: Any, alerts: Any
) -> None:
    """Not only by the keys of its alerts, which a purge forgets."""
    stuck = StuckAlerts(url, "alerts", checkpoint=checkpoint, waiting={"jobs": 0.1}, spark=spark)
    jobs.put("a")
    with watching(stuck) as watch:
        alerts.get(timeout=PATIENCE)
        # What it was ended at would be done again.
        watch.rest()
    alerts.purge()

    assert stuck.run(once=True) == 0
    assert alerts.empty()


def test_a_message_that_was_put_off_is_told_of_when_it_waits_too_long_after_it_is_due(
    spark: SparkSession, url: str, checkpoint: Path, jobs: Any, alerts: Any
) -> None:
    stuck = StuckAlerts(url, "alerts", checkpoint=checkpoint, waiting={"jobs": 0.1}, spark=spark)
    with watching(stuck):
        far, near = jobs.put("later", delay=3600), jobs.put("soon", delay=0.5)

        alert = alerts.get(timeout=PATIENCE)

    assert alert["message_id"] == near.id
    assert datetime.fromisoformat(alert["since"]).timestamp() == pytest.approx(near.available_at)
    assert far.id not in {message for message, _, _ in told(alerts)}


def test_what_is_told_is_what_the_journal_has(
    spark: SparkSession, url: str, checkpoint: Path, jobs: Any, alerts: Any
) -> None:
    """Some wait, some run too long, some come back and wait again; the query ends in between."""
    limit = 0.15
    stuck = StuckAlerts(
        url, "alerts", checkpoint=checkpoint, waiting={"jobs": limit}, running={"jobs": limit},
        spark=spark,
    )  # fmt: skip
    stuck.run(once=True)
    pause = threading.Event()
    for number in range(12):
        jobs.put(number)
        pause.wait(0.3 if number % 3 == 0 else 0.01)
        message = jobs.get_message()
        pause.wait(0.2 if number % 4 == 0 else 0)
        if number % 5 == 0:
            jobs.release(message)
            pause.wait(0.2 if number == 5 else 0)
            message = jobs.get_message()
        jobs.ack(message)
        if number in (3, 8):
            stuck.run(once=True)
    stuck.run(once=True)

    expected: Counter[tuple[str, str, int]] = Counter()
    for event in jobs.store.journal(limit=100_000):
        if event.leased_at is not None:
            key = event.message_id, event.attempt
            expected[key[0], "waiting", key[1]] += event.waited > limit
            expected[key[0], "running", key[1]] += event.ran > limit
    assert told(alerts) == +expected
    assert len(+expected) >= 6


def test_with_its_checkpoint_lost_nothing_is_told_twice(
    spark: SparkSession, url: str, checkpoint: Path, jobs: Any, alerts: Any
) -> None:
    stuck = StuckAlerts(url, "alerts", checkpoint=checkpoint, waiting={"jobs": 0.1}, spark=spark)
    jobs.put("a")
    with watching(stuck):
        taken = alerts.get_message(timeout=PATIENCE)
    alerts.ack(taken)
    shutil.rmtree(checkpoint)

    with watching(stuck) as watch:
        watch.rest()

    assert alerts.empty()


@pytest.mark.parametrize(
    "deaths",
    [
        pytest.param(["after-put"], id="once"),
        pytest.param(["before-put", "after-put"], id="twice", marks=pytest.mark.long),
    ],
)
@pytest.mark.timeout(600)
def test_a_driver_that_is_killed_loses_no_alert_and_puts_none_twice(
    spark: SparkSession, url: str, checkpoint: Path, jobs: Any, alerts: Any, deaths: list[str]
) -> None:
    def die_at(point: str) -> None:
        program = [sys.executable, "-m", "tests.pipeline.alerts_program"]
        command = [*program, url, str(checkpoint), f"alerts.{point}"]
        done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL, done.stderr

    messages = {message.id for message in jobs.put_many(range(20))}
    threading.Event().wait(1.3)  # until they are due for an alert

    for point in deaths:
        die_at(point)
        assert alerts.qsize() == (0 if point == "before-put" else len(messages))
    stuck = StuckAlerts(url, "alerts", checkpoint=checkpoint, waiting={"jobs": LIMIT}, spark=spark)
    stuck.run(once=True)

    assert told(alerts) == {(message, "waiting", 1): 1 for message in messages}


def test_a_second_query_of_a_name_is_refused(
    spark: SparkSession, url: str, checkpoint: Path, jobs: Any
) -> None:
    jobs.put("a")
    leads = Leadership(jobs.store, "alerts:default")
    try:
        with pytest.raises(ConfigurationError, match="alerts:default"):
            StuckAlerts(
                url, "alerts", checkpoint=checkpoint, waiting={"jobs": 1.0}, spark=spark
            ).run(once=True)
    finally:
        leads.close()


def test_a_store_or_a_queue_that_does_not_exist_is_said(
    spark: SparkSession, url: str, tmp_path: Path, checkpoint: Path, jobs: Any
) -> None:
    missing = f"sqlite:///{tmp_path / 'missing.sqlite3'}"
    with pytest.raises(StoreMissing):
        StuckAlerts(
            missing, "alerts", checkpoint=checkpoint, waiting={"jobs": 1.0}, spark=spark
        ).run(once=True)
    with pytest.raises(ConfigurationError, match="odrers"):
        StuckAlerts(url, "alerts", checkpoint=checkpoint, waiting={"odrers": 1.0}, spark=spark).run(
            once=True
        )
