"""Counts, durations and depths of queues, in one snapshot."""

from __future__ import annotations

import gc
import math
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from localqueue.telemetry.events import Acked, Event, HandlerEnded, HandlerStarted
from localqueue.telemetry.metrics import BOUNDS, HistogramSnapshot, Metrics
from localqueue.testing import ManualClock
from tests.unit.queue.phrases import Background
from tests.unit.stores.phrases import run_program
from tests.unit.telemetry.phrases import NewQueue


def at_most(histogram: HistogramSnapshot, bound: float) -> int:
    return dict(histogram.buckets)[bound]


def test_events_are_counted_by_queue_and_kind(new_queue: NewQueue) -> None:
    metrics = Metrics()
    jobs, mails = new_queue("jobs", listeners=[metrics]), new_queue("mails", listeners=[metrics])

    jobs.put_many(["a", "b"])
    jobs.ack(jobs.get_message())
    mails.put("c")

    seen = metrics.snapshot()
    assert seen["jobs"].events == {"enqueued": 2, "leased": 1, "acked": 1}
    assert seen["mails"].events == {"enqueued": 1}


def test_errors_are_counted_by_type(new_queue: NewQueue) -> None:
    metrics = Metrics()
    queue = new_queue(listeners=[metrics])
    queue.put_many(["a", "b", "c"])

    queue.release(queue.get_message(), error=OSError("x"))
    queue.dead_letter(queue.get_message(), OSError("y"))
    queue.release(queue.get_message(), error="a text")

    assert metrics.snapshot()["jobs"].errors == {
        ("retried", "OSError"): 1,
        ("dead_lettered", "OSError"): 1,
        ("retried", "none"): 1,
    }


def test_waits_and_runs_fall_into_the_buckets_of_their_length(
    new_queue: NewQueue, clock: ManualClock
) -> None:
    metrics = Metrics()
    queue = new_queue(listeners=[metrics])
    queue.put_many(["a", "b"])

    clock.advance(0.1)
    first = queue.get_message()
    clock.advance(2)
    queue.ack(first)
    queue.release(queue.get_message(), error="x")

    seen = metrics.snapshot()["jobs"]
    assert seen.wait.count == seen.run.count == 2
    assert seen.wait.sum == pytest.approx(0.1 + 2.1)
    assert [at_most(seen.wait, bound) for bound in (0.05, 0.25, 2.5)] == [0, 1, 2]
    assert seen.run.sum == pytest.approx(2.0)
    assert [at_most(seen.run, bound) for bound in (0.001, 1.0, 2.5)] == [1, 1, 2]


def test_a_duration_on_a_bound_belongs_to_it_and_a_long_one_to_the_last_bucket() -> None:
    metrics = Metrics()

    metrics(Acked(queue="q", at=0.0, ran=1.0))
    metrics(Acked(queue="q", at=0.0, ran=1e9))
    metrics(Acked(queue="q", at=0.0))

    run = metrics.snapshot()["q"].run
    assert [at_most(run, bound) for bound in (0.5, 1.0, 3600.0, math.inf)] == [0, 1, 1, 2]
    assert [bound for bound, _ in run.buckets] == [*BOUNDS, math.inf]


def test_handlers_that_run_are_counted_and_timed(new_queue: NewQueue) -> None:
    metrics = Metrics()
    queue = new_queue(listeners=[metrics])
    queue.put("a")
    message = queue.get_message()

    with queue.telemetry.handling(message):
        assert metrics.snapshot()["jobs"].running == 1

    seen = metrics.snapshot()["jobs"]
    assert (seen.running, seen.handler.count) == (0, 1)


def test_a_handler_that_began_before_anybody_listened_is_not_missing_afterwards() -> None:
    metrics = Metrics()

    metrics(HandlerEnded(queue="q", at=0.0, took=1.0))
    metrics(HandlerStarted(queue="q", at=0.0))

    assert metrics.snapshot()["q"].running == 1


def test_what_a_queue_holds_is_asked_when_somebody_looks(new_queue: NewQueue) -> None:
    elsewhere, queue = new_queue(listeners=()), new_queue(listeners=())
    metrics = Metrics([queue])

    elsewhere.put_many(["a", "b"])

    seen = metrics.snapshot()["jobs"]
    assert seen.stats is not None
    assert seen.stats.ready == 2
    assert seen.events == {}


def test_a_queue_is_measured_until_that_is_stopped(new_queue: NewQueue) -> None:
    queue, metrics = new_queue(listeners=()), Metrics()
    stop = metrics.add(queue)
    queue.put("a")

    stop()
    queue.put("b")

    seen = metrics.snapshot()["jobs"]
    assert seen.events == {"enqueued": 1}
    assert seen.stats is None


def test_a_queue_that_cannot_be_asked_is_left_out_and_logged_once(
    new_queue: NewQueue, caplog: pytest.LogCaptureFixture
) -> None:
    closed, queue = new_queue("closed", listeners=()), new_queue(listeners=())
    metrics = Metrics([closed, queue])
    closed.close()

    assert [*metrics.snapshot()] == ["jobs"]
    assert [*metrics.snapshot()] == ["jobs"]
    assert len(caplog.records) == 1


def test_metrics_keep_no_queue_alive(new_queue: NewQueue) -> None:
    queue = new_queue(listeners=())
    metrics, gone = Metrics([queue]), weakref.ref(queue)

    del queue
    gc.collect()

    assert gone() is None
    assert metrics.snapshot() == {}


class Slow(str):
    """A word that takes its time in every look-up, so that threads change places there."""

    def __hash__(self) -> int:
        return super().__hash__()


class Counted(Event):
    kind: ClassVar[str] = Slow("counted")


@pytest.fixture
def threads_take_turns() -> Iterator[None]:
    """At every moment where the interpreter lets them."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-7)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("threads_take_turns")
def test_no_count_is_lost_between_threads() -> None:
    metrics = Metrics()
    event = Counted(queue="q", at=0.0)

    def count() -> None:
        for _ in range(2_000):
            metrics(event)

    for thread in [Background(count) for _ in range(4)]:
        thread.result()

    assert metrics.snapshot()["q"].events == {"counted": 8_000}


def test_a_forked_child_waits_for_no_lock_of_its_parent(tmp_path: Path) -> None:
    run_program(
        """
        import os, sys
        from localqueue import PersistentQueue
        from localqueue.telemetry import Metrics
        import threading

        queue = PersistentQueue("jobs", store_path=sys.argv[1])
        metrics = Metrics([queue])
        held, may_end = threading.Event(), threading.Event()

        def hold():
            with metrics._lock, metrics._queues._lock:
                held.set()
                may_end.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        child = os.fork()
        if child == 0:
            queue.put("a")
            os._exit(0 if metrics.snapshot()["jobs"].stats.ready == 1 else 1)
        assert os.waitpid(child, 0)[1] == 0
        may_end.set()
        holder.join()
        """,
        tmp_path / "queue.sqlite3",
    )
