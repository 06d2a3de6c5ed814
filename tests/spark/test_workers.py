"""Workers on Spark: the driver leases and settles, executors call the handler."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import InheritableThread

from localqueue import (
    AtMostOnceDelivery,
    BytesCodec,
    EffectivelyOnceDelivery,
    PersistentQueue,
    ReturnStoredResult,
)
from localqueue.errors import ConfigurationError, InvalidArgument
from localqueue.idempotency.records import IdempotencyRecords
from localqueue.message import QueueMessage
from localqueue.policies.crash_limit import DEFAULT_CRASH_LIMIT as CRASH_LIMIT
from localqueue.resilience.rate_limiter import RateLimit
from localqueue.spark import run_on_spark
from localqueue.spark.workers import worker as worker_module
from localqueue.spark.workers.jobs import RddJobs
from localqueue.spark.workers.worker import SparkWorker
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.telemetry.events import Event, HandlerEnded, HandlerStarted
from localqueue.workers.context import current_message
from tests.spark import handlers
from tests.spark.handlers import PATIENCE, notes
from tests.spark.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Queue = PersistentQueue[Any]


@pytest.fixture
def store(store_path: Path) -> Iterator[SQLiteQueueStore]:
    with SQLiteQueueStore(store_path, durability="relaxed") as store:
        yield store


@pytest.fixture
def queue(store: SQLiteQueueStore) -> Queue:
    return PersistentQueue("jobs", store=store)


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    return tmp_path / "diary"


def nonzero(summary: Any) -> dict[str, int]:
    """What was leased and given back before it began depends on the pace of the machine."""
    return {n: count for n, count in summary.as_dict().items() if count and n != "returned"}


# --- what it does -------------------------------------------------------------------------------
def test_every_message_is_handled_once_on_executors_and_acknowledged(
    spark: SparkSession, queue: Queue, diary: Path
) -> None:
    queue.put_many([{"n": n, "diary": str(diary)} for n in range(500)])

    summary = run_on_spark(queue, handlers.write_down, spark=spark, until_empty=True)

    assert summary.done == 500
    assert queue.stats().total == 0
    written = notes(diary)
    assert sorted(int(n) for n, _, _ in written) == list(range(500))
    assert str(os.getpid()) not in {pid for _, _, pid in written}


def test_lambdas_and_closures_are_handlers_too(
    spark: SparkSession, queue: Queue, diary: Path
) -> None:
    place = str(diary)
    queue.put_many([1, 2, 3])

    summary = run_on_spark(
        queue, lambda n: handlers.note(place, f"{n}"), spark=spark, until_empty=True
    )

    assert nonzero(summary) == {"done": 3}
    assert sorted(notes(diary)) == [["1"], ["2"], ["3"]]


def test_coroutine_functions_are_awaited_and_know_their_message(
    spark: SparkSession, queue: Queue, diary: Path
) -> None:
    queue.put_many([{"n": n, "diary": str(diary)} for n in range(3)])

    summary = run_on_spark(queue, handlers.awaits, spark=spark, until_empty=True)

    assert nonzero(summary) == {"done": 3}
    assert sorted((n, attempt) for n, attempt, _ in notes(diary)) == [
        ("0", "1"), ("1", "1"), ("2", "1"),
    ]  # fmt: skip


def test_a_slow_message_holds_nobody_else(
    spark: SparkSession, queue: Queue, diary: Path, tmp_path: Path
) -> None:
    """Neither those before it in its batch nor those behind it, nor other batches."""
    gate = tmp_path / "gate"
    quick = [{"n": n} for n in range(1000)]
    queue.put_many(quick)
    queue.put({"gate": str(gate), "diary": str(diary)})
    queue.put_many(quick)

    worker = SparkWorker(queue, handlers.wait_for_gate, spark=spark).start(until_empty=True)
    try:
        until(lambda: worker.summary.done == 2000, "the others wait for it")

        assert notes(diary) == [["waits"]]
        assert queue.stats().inflight == 1
    finally:
        gate.touch()
    assert worker.join(PATIENCE)
    assert worker.summary.done == 2001


def test_a_large_job_of_somebody_else_does_not_hold_the_messages(
    spark: SparkSession, queue: Queue
) -> None:
    context = spark.sparkContext
    assert context.getConf().get("spark.scheduler.mode") == "FAIR"

    def fill_all_cores() -> None:
        context.addJobTag("large")
        with contextlib.suppress(Exception):
            context.parallelize(range(2000), 2000).foreach(handlers.nap)

    large = InheritableThread(fill_all_cores)
    large.start()
    until(lambda: bool(context.statusTracker().getActiveJobsIds()), "it does not begin")
    queue.put_many([{}] * 20)

    summary = run_on_spark(queue, handlers.wait_for_gate, spark=spark, until_empty=True)

    assert summary.done == 20
    assert context.statusTracker().getActiveJobsIds()
    context.cancelJobsWithTag("large")
    large.join()


def test_without_a_way_back_to_the_driver_everything_comes_with_the_job(
    spark: SparkSession,
    queue: Queue,
    diary: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RddJobs, "desk", lambda self: None)
    gate = tmp_path / "gate"
    queue.put({"gate": str(gate), "diary": str(diary)})
    queue.put_many([{"n": n} for n in range(500)])

    worker = SparkWorker(queue, handlers.wait_for_gate, spark=spark).start(until_empty=True)
    # The first batches are of one message: the others go past it.
    until(lambda: worker.summary.done == 500, "the other batches wait for it")
    gate.touch()

    assert worker.join(PATIENCE)
    assert worker.summary.done == 501


def test_leases_are_held_while_handlers_run(
    spark: SparkSession, store: SQLiteQueueStore, diary: Path, tmp_path: Path
) -> None:
    queue: Queue = PersistentQueue("jobs", store=store, lease_timeout=1.0)
    gate = tmp_path / "gate"
    id = queue.put({"gate": str(gate), "diary": str(diary)}).id

    worker = SparkWorker(queue, handlers.wait_for_gate, spark=spark).start(until_empty=True)
    until(lambda: bool(notes(diary)), "it never begins")
    first = _deadline(queue, id)
    until(lambda: _deadline(queue, id) > first + 1.0, "the lease is not extended")
    gate.touch()

    assert worker.join(PATIENCE)
    assert nonzero(worker.summary) == {"done": 1}
    assert notes(diary) == [["waits"]]


def _deadline(queue: Queue, id: str) -> float:
    message = queue.inspect(id)
    assert message is not None
    return message.leased_until or 0.0


# --- how deliveries end -------------------------------------------------------------------------
def test_the_worker_rule_decides_what_becomes_of_a_failure(
    spark: SparkSession, queue: Queue
) -> None:
    queue.put_many(["retry", "reject", "snooze", "import", "exit", "fine"])

    summary = run_on_spark(
        queue, handlers.by_its_word, spark=spark, until_empty=True, max_tries=2, backoff=0.0
    )

    # Twice "retry" and twice "exit", the last ones as dead letters beside "reject" and "import".
    assert nonzero(summary) == {"done": 2, "failed": 2, "dead": 4, "snoozed": 1}
    dead = {letter.value: letter for letter in queue.dead_letters()}
    assert {value: letter.failures for value, letter in dead.items()} == {
        "retry": 2, "exit": 2, "reject": 1, "import": 1,
    }  # fmt: skip


def test_an_error_comes_back_with_its_type_text_and_place(
    spark: SparkSession, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.put("paper")

    with caplog.at_level(logging.ERROR, "localqueue.workers"):
        run_on_spark(queue, handlers.by_its_word, spark=spark, until_empty=True, max_tries=1)

    [letter] = queue.dead_letters()
    assert letter.last_error is not None
    assert letter.last_error["type"] == "OutOfPaper"
    assert letter.last_error["module"] == "tests.spark.handlers"
    assert letter.last_error["message"] == "lp0 has no paper in tray 2"
    assert 'raise OutOfPaper("lp0", 2)' in caplog.text


def test_a_result_that_cannot_come_back_is_a_failure_of_that_message_alone(
    spark: SparkSession, queue: Queue
) -> None:
    queue.put_many(["fine", "lambda", "coroutine", "fine"])

    summary = run_on_spark(queue, handlers.by_its_word, spark=spark, until_empty=True)

    assert nonzero(summary) == {"done": 2, "dead": 2}
    assert {_error_type(letter) for letter in queue.dead_letters()} == {"InvalidResult"}


class Sealed:
    """A value that can be sent, and cannot be made of what was sent."""

    def __reduce__(self) -> tuple[Any, ...]:
        return __import__, ("nowhere.to.be.found",)


class Letters(BytesCodec):
    """Some of them are sealed."""

    def decode(self, body: bytes) -> Any:
        return Sealed() if body == b"sealed" else body


def test_a_value_that_executors_cannot_read_is_a_failure_of_that_message_alone(
    spark: SparkSession, store: SQLiteQueueStore, diary: Path
) -> None:
    queue: Queue = PersistentQueue("letters", store=store, codec_policy=Letters())
    queue.put_many([b"sealed" if n in (40, 90) else b"%d" % n for n in range(100)])
    place = str(diary)

    summary = run_on_spark(
        queue,
        lambda letter: handlers.note(place, letter.decode()),
        spark=spark,
        until_empty=True,
        batches=1,
        max_tries=1,
    )

    assert nonzero(summary) == {"done": 98, "dead": 2}
    assert sorted(int(n) for [n] in notes(diary)) == [n for n in range(100) if n not in (40, 90)]
    for letter in queue.dead_letters():
        assert (letter.failures, letter.crashes) == (1, 0)
        assert _error_type(letter) == "InvalidMessageType"
        assert "nowhere" in str(letter.last_error)


def test_a_handler_that_runs_too_long_is_interrupted_and_a_deaf_one_is_ended(
    spark: SparkSession, queue: Queue
) -> None:
    queue.put_many(["sleeps", "deaf", "fine"])

    summary = run_on_spark(
        queue, handlers.sleeps, spark=spark, until_empty=True, timeout=0.3, max_tries=1
    )

    assert nonzero(summary) == {"done": 1, "dead": 2}
    for letter in queue.dead_letters():
        assert _error_type(letter) == "HandlerTimeout"
        assert (letter.failures, letter.crashes) == (1, 0)


def test_progress_is_heard_while_the_handler_runs(
    spark: SparkSession, queue: Queue, tmp_path: Path
) -> None:
    heard: list[tuple[str, str]] = []
    gate = tmp_path / "gate"

    def hear(message: Any, note: str) -> None:
        heard.append((message.id, note))
        gate.touch()

    message = queue.put(str(gate))

    summary = run_on_spark(queue, handlers.reports, spark=spark, until_empty=True, on_progress=hear)

    assert nonzero(summary) == {"done": 1}
    assert heard == [(message.id, "50%")]


def test_a_message_that_was_cancelled_ends_its_handler(
    spark: SparkSession, store: SQLiteQueueStore, diary: Path, tmp_path: Path
) -> None:
    queue: Queue = PersistentQueue("jobs", store=store, lease_timeout=1.0)
    message = queue.put({"gate": str(tmp_path / "never"), "diary": str(diary)})

    worker = SparkWorker(queue, handlers.wait_for_gate, spark=spark).start(until_empty=True)
    until(lambda: bool(notes(diary)), "it never begins")
    queue.cancel(message.id)

    assert worker.join(PATIENCE)
    assert nonzero(worker.summary) == {"cancelled": 1}


def test_those_who_listen_hear_of_every_handler(
    spark: SparkSession, store: SQLiteQueueStore
) -> None:
    events: list[Event] = []
    queue: Queue = PersistentQueue("jobs", store=store, listeners=[events.append])
    queue.put_many(["fine", "reject"])

    run_on_spark(queue, handlers.by_its_word, spark=spark, until_empty=True)

    assert sum(isinstance(event, HandlerStarted) for event in events) == 2
    ended = [event for event in events if isinstance(event, HandlerEnded)]
    assert Counter(event.error_type for event in ended) == {None: 1, "Reject": 1}
    assert all(event.took > 0 for event in ended)


def _error_type(letter: QueueMessage[Any]) -> str:
    assert letter.last_error is not None
    return str(letter.last_error["type"])


# --- deaths -------------------------------------------------------------------------------------
def test_poison_becomes_a_dead_letter_and_its_neighbours_are_not_charged(
    spark: SparkSession, queue: Queue, diary: Path
) -> None:
    jobs = [{"n": n, "diary": str(diary)} for n in range(200)]
    jobs[100]["poison"] = True
    queue.put_many(jobs)

    summary = run_on_spark(queue, handlers.dies, spark=spark, until_empty=True)

    assert (summary.done, summary.dead, summary.crashed) == (199, 1, CRASH_LIMIT - 1)
    [letter] = queue.dead_letters()
    assert letter.value["n"] == 100
    assert (letter.crashes, letter.failures) == (CRASH_LIMIT, 0)
    charged = [event for event in _journal(queue) if event.kind == "crashed"]
    assert {event.message_id for event in charged} <= {letter.id}


def _journal(queue: Queue) -> list[Any]:
    return list(queue.store.journal([queue.name]))


def test_sparks_own_second_attempt_at_a_task_calls_no_handler(
    spark: SparkSession, queue: Queue, diary: Path
) -> None:
    queue.put({"n": 1, "diary": str(diary), "poison": True})

    summary = run_on_spark(queue, handlers.dies, spark=spark, until_empty=True)

    assert nonzero(summary) == {"crashed": CRASH_LIMIT - 1, "dead": 1}
    # Once for each delivery, although Spark has begun each task again.
    assert [attempt for _, attempt, _ in notes(diary)] == ["1", "2", "3"]


def test_a_message_that_has_not_begun_is_not_charged_with_the_death_of_its_task(
    spark: SparkSession, queue: Queue, diary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "HandlerTask", handlers.DiesBefore)
    deaths = diary.with_name("deaths")
    times = CRASH_LIMIT + 1
    queue.put({"n": 1, "diary": str(diary), "deaths": str(deaths), "times": times})

    summary = run_on_spark(queue, handlers.write_down, spark=spark, until_empty=True)

    assert len(notes(deaths)) == times
    assert nonzero(summary) == {"done": 1, "released": times}
    assert len(notes(diary)) == 1
    assert "crashed" not in {event.kind for event in _journal(queue)}


def test_where_no_task_can_say_that_it_began_a_message_that_was_alone_is_charged(
    spark: SparkSession, queue: Queue, diary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RddJobs, "desk", lambda self: None)
    queue.put({"n": 1, "diary": str(diary), "poison": True})

    summary = run_on_spark(queue, handlers.dies, spark=spark, until_empty=True)

    assert nonzero(summary) == {"crashed": CRASH_LIMIT - 1, "dead": 1}


# --- promises of the queue ----------------------------------------------------------------------
def test_effectively_once_runs_a_key_once_and_keeps_its_result(
    spark: SparkSession, store: SQLiteQueueStore, diary: Path
) -> None:
    ledger = IdempotencyRecords.of(store)
    queue: Queue = PersistentQueue(
        "jobs", store=store, delivery_policy=EffectivelyOnceDelivery(ledger, ReturnStoredResult())
    )
    queue.put({"n": 1, "diary": str(diary)}, dedupe_key="a")
    run_on_spark(queue, handlers.awaits, spark=spark, until_empty=True)
    queue.put({"n": 1, "diary": str(diary)}, dedupe_key="a")

    summary = run_on_spark(queue, handlers.awaits, spark=spark, until_empty=True)

    assert nonzero(summary) == {"done": 1}
    assert len(notes(diary)) == 1
    record = ledger.load("jobs:a")
    assert record is not None
    assert record.metadata["result"] == 1


def test_at_most_once_a_message_that_dies_takes_no_other_with_it(
    spark: SparkSession, store: SQLiteQueueStore, diary: Path
) -> None:
    queue: Queue = PersistentQueue("jobs", store=store, delivery_policy=AtMostOnceDelivery())
    queue.put_many([{"n": n, "diary": str(diary), "poison": n == 2} for n in range(6)])

    summary = run_on_spark(queue, handlers.dies, spark=spark, until_empty=True)

    assert sorted(n for n, _, _ in notes(diary)) == list("012345")
    assert summary.done == 5
    assert queue.stats().total == 0


def test_no_more_handlers_start_than_the_rate_allows(
    spark: SparkSession, queue: Queue, diary: Path
) -> None:
    queue.put_many([{"n": n, "diary": str(diary)} for n in range(50)])
    worker = SparkWorker(
        queue, handlers.write_down, spark=spark, rate_limit=RateLimit(20, per=3600.0)
    )

    with worker:
        until(lambda: worker.summary.done == 20, "they are not started")
        # The rest are not leased either.
        assert queue.stats().ready == 30

    assert len(notes(diary)) == 20


# --- stopping -----------------------------------------------------------------------------------
def test_a_worker_that_stops_gives_back_what_has_not_begun_and_waits_for_the_rest(
    spark: SparkSession, queue: Queue, diary: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    value = {"gate": str(gate), "diary": str(diary)}
    queue.put_many([value] * 20)
    worker = SparkWorker(queue, handlers.wait_for_gate, spark=spark, batches=2).start()
    until(lambda: len(notes(diary)) == 2, "two of them should run")

    worker.stop()
    gate.touch()

    assert worker.join(PATIENCE)
    assert worker.summary.done == 2
    assert (queue.stats().ready, queue.stats().inflight) == (18, 0)


def test_a_worker_that_stops_at_once_ends_the_jobs_and_charges_nothing(
    spark: SparkSession, queue: Queue, diary: Path, tmp_path: Path
) -> None:
    queue.put_many([{"gate": str(tmp_path / "never"), "diary": str(diary)}] * 3)
    worker = SparkWorker(queue, handlers.wait_for_gate, spark=spark, batches=2).start()
    until(lambda: len(notes(diary)) == 2, "two of them should run")

    worker.stop(now=True)

    assert worker.join(PATIENCE)
    assert nonzero(worker.summary) == {"released": 2}
    assert queue.stats().ready == 3
    assert all((m.failures, m.crashes) == (0, 0) for m in queue.peek(3))
    until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds(), "a job still runs")
    assert threading.active_count() < 50


# --- what cannot work ---------------------------------------------------------------------------
def test_a_handler_that_cannot_be_sent_is_refused(spark: SparkSession, queue: Queue) -> None:
    lock = threading.Lock()

    def handler(value: Any) -> None:
        with lock:
            pass

    with pytest.raises(ConfigurationError, match="cannot be sent to executors"):
        SparkWorker(queue, handler, spark=spark)


def test_a_handler_that_executors_cannot_load_is_refused_before_anything_is_leased(
    spark: SparkSession, queue: Queue
) -> None:
    queue.put(1)

    with pytest.raises(
        ConfigurationError, match="executors cannot load the handler: ModuleNotFoundError"
    ):
        run_on_spark(queue, OnlyHere(), spark=spark, until_empty=True)

    [message] = queue.peek(1)
    assert message.attempts == 0


class OnlyHere:
    """What is made of it elsewhere is an error."""

    def __call__(self, value: Any) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]:
        return __import__, ("nowhere.to.be.found",)


def test_a_size_of_nothing_is_refused(spark: SparkSession, queue: Queue) -> None:
    with pytest.raises(InvalidArgument, match="batch_size"):
        run_on_spark(queue, handlers.write_down, spark=spark, batch_size=0)
    with pytest.raises(InvalidArgument, match="batches"):
        run_on_spark(queue, handlers.write_down, spark=spark, batches=0)


def test_generators_are_refused_as_everywhere(spark: SparkSession, queue: Queue) -> None:
    def handler(value: Any) -> Iterator[Any]:
        yield value

    with pytest.raises(ConfigurationError, match="generator"):
        SparkWorker(queue, handler, spark=spark)


def test_the_driver_has_no_current_message() -> None:
    with pytest.raises(ConfigurationError):
        current_message()
