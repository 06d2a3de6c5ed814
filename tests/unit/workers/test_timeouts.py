"""Handlers that are told that their time is over, and go on."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localqueue.idempotency.records import IdempotencyRecords
from localqueue.message import QueueMessage
from localqueue.policies import EffectivelyOnceDelivery, OrderingKeys
from localqueue.policies.guarantees import POLICIES
from localqueue.workers import Summary, Worker, current_message, timeouts
from localqueue.workers.context import Slot
from tests.unit.workers.noting import Noting, SlowToUndo
from tests.unit.workers.phrases import Stage, dead_errors, eventually, working

SOON = 0.2


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "GRACE", SOON)


class Endless:
    """A handler that never looks whether it should end; others end at once."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.ended: list[Any] = []
        self.began = 0

    def __call__(self, value: Any) -> str:
        self.began += 1
        if value == "endless":
            assert self.gate.wait(20)
        self.ended.append(value)
        return "done after all"


# --- in threads ---------------------------------------------------------------------------------
@pytest.mark.usefixtures("short_grace")
def test_it_is_tried_again_as_after_any_failure_and_then_a_dead_letter(stage: Stage) -> None:
    queue, handler = stage.queue(), Endless()
    message = queue.put("endless")

    with working(Worker(queue, handler, concurrency=2, timeout=0.1, max_tries=3, backoff=0)) as w:
        eventually(lambda: w.summary.dead)
        handler.gate.set()

    assert w.summary == Summary(failed=2, dead=1)
    (dead,) = queue.dead_letters()
    assert (dead.id, dead.attempts, dead.failures, dead.crashes) == (message.id, 3, 3, 0)


@pytest.mark.usefixtures("short_grace")
def test_what_it_returns_later_is_dropped(stage: Stage) -> None:
    queue, handler = stage.queue(), Endless()
    queue.put("endless")

    with working(Worker(queue, handler, concurrency=2, timeout=0.1, max_tries=1)) as worker:
        eventually(lambda: worker.summary.dead)
        handler.gate.set()
        eventually(lambda: handler.ended)
        queue.put_many(range(20))
        eventually(lambda: worker.summary.done == 20)

    assert worker.summary == Summary(done=20, dead=1, returned=worker.summary.returned)
    assert dead_errors(queue) == ["HandlerTimeout"]


@pytest.mark.usefixtures("short_grace")
def test_more_of_them_than_there_are_places_end_as_dead_letters(stage: Stage) -> None:
    queue, handler = stage.queue(), Endless()
    queue.put_many([*["endless"] * 5, "plain"])

    worker = Worker(queue, handler, concurrency=2, timeout=0.1, max_tries=1)
    summary = worker.run(until_empty=True)
    handler.gate.set()

    assert summary == Summary(done=1, dead=5, returned=summary.returned)


def test_a_stop_after_its_time_was_over_is_a_failure_and_no_interruption(stage: Stage) -> None:
    queue = stage.queue()
    message = queue.put("endless")
    told, gate = threading.Event(), threading.Event()

    def handler(value: Any) -> None:
        if current_message().wait(20):
            told.set()
        gate.wait(20)

    worker = Worker(queue, handler, timeout=0.1, max_tries=2, backoff=0).start()
    assert told.wait(20)
    worker.stop(now=True)
    assert worker.join(20)
    gate.set()

    found = queue.inspect(message.id)
    assert found is not None
    assert (found.state, found.failures, worker.summary) == ("ready", 1, Summary(failed=1))


@pytest.mark.usefixtures("short_grace")
def test_one_that_was_cancelled_and_goes_on_is_removed_when_its_time_is_over(stage: Stage) -> None:
    # Not shorter: on a busy machine the lease would end, and what was asked of it as well.
    queue, handler = stage.queue(lease_timeout=2.0), Endless()
    message = queue.put("endless")

    with working(Worker(queue, handler, concurrency=2, timeout=1.5)) as worker:
        eventually(lambda: handler.began)
        queue.cancel(message.id)
        eventually(lambda: queue.stats().total == 0)
        handler.gate.set()

    assert worker.summary == Summary(cancelled=1)


@pytest.mark.usefixtures("short_grace")
def test_the_log_says_who_is_left_behind(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    queue, handler = stage.queue(), Endless()
    message = queue.put("endless")

    Worker(queue, handler, concurrency=2, timeout=0.1, max_tries=1).run(until_empty=True)
    handler.gate.set()

    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert [text for text in warnings if message.id in text and "does not end" in text]
    assert [text for text in warnings if "1 handler that ran too long goes on" in text]


PROGRAM = """
import sys
from localqueue import PersistentQueue
from localqueue.workers import Worker, timeouts

timeouts.GRACE = 0.2
queue = PersistentQueue("jobs", store_path=sys.argv[1])
queue.put("endless")

def handler(value):
    while True:
        pass

print(Worker(queue, handler, concurrency=2, timeout=0.1, max_tries=1).run(until_empty=True).dead)
"""


def test_a_process_ends_whatever_its_handlers_do(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "queue.sqlite3")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (0, "1\n"), ended.stderr


@pytest.mark.usefixtures("short_grace")
def test_the_next_of_its_key_may_run_beside_it_and_the_guarantee_says_so(stage: Stage) -> None:
    queue, handler = stage.queue(ordering_policy=OrderingKeys()), Endless()
    queue.put("endless", ordering_key="k")
    queue.put("plain", ordering_key="k")

    with working(Worker(queue, handler, concurrency=2, timeout=0.1, max_tries=1)) as worker:
        eventually(lambda: worker.summary.done)
        assert handler.ended == ["plain"]
        handler.gate.set()

    (row,) = [row for row in POLICIES if row.policies == ("OrderingKeys",)]
    assert "timeout=" in row.failure_window


class FewThreads:
    """Whether threads for handlers can be started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.are_all = False
        self.refused = 0
        start = threading.Thread.start

        def start_if_possible(thread: threading.Thread) -> None:
            if self.are_all and thread.name.startswith(("localqueue-worker-", "localqueue-given")):
                self.refused += 1
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_if_possible)


def said_that_nobody_takes_its_place(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for r in caplog.records if "nobody takes the place" in (text := r.getMessage())]


@pytest.mark.usefixtures("short_grace")
def test_its_place_stays_taken_while_no_thread_can_be_started_and_the_worker_goes_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    queue, handler, threads = stage.queue(), Endless(), FewThreads(monkeypatch)

    with working(Worker(queue, handler, concurrency=2, timeout=0.1, max_tries=1)) as worker:
        eventually(lambda: worker._shift and worker._shift.free() == 2)
        threads.are_all = True
        queue.put("endless")
        eventually(lambda: threads.refused >= 2)
        queue.put_many(["plain"] * 5)
        eventually(lambda: worker.summary.done == 5)
        assert len(said_that_nobody_takes_its_place(caplog)) == 1
        threads.are_all = False
        eventually(lambda: worker._shift and worker._shift.free() == 2)
        handler.gate.set()

    assert worker.summary == Summary(done=5, dead=1, returned=worker.summary.returned)


@pytest.mark.usefixtures("short_grace")
def test_no_more_than_so_many_are_left_behind_until_some_of_them_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(timeouts, "LEFT_PER_PLACE", 1)
    monkeypatch.setattr(timeouts, "LEAST_LEFT", 2)
    queue, handler = stage.queue(), Endless()
    queue.put_many(["endless"] * 10)

    with working(Worker(queue, handler, concurrency=2, timeout=0.1, max_tries=1)) as worker:
        eventually(lambda: worker.summary.dead == 4)
        eventually(lambda: said_that_nobody_takes_its_place(caplog))
        assert handler.began == 4, "two are left behind, and two have kept their places"
        handler.gate.set()
        eventually(lambda: worker.summary.done == 6)

    assert len(said_that_nobody_takes_its_place(caplog)) == 1
    assert len(handler.ended) == 10


def is_in_memory(id: str) -> bool:
    gc.collect()
    return any(type(one) is QueueMessage and one.id == id for one in gc.get_objects())


@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize("kind", ["thread", "asyncio"])
def test_nothing_of_it_is_kept_when_it_has_ended_after_all(stage: Stage, kind: Any) -> None:
    queue, gate = stage.queue(lease_timeout=0.9), threading.Event()
    id = queue.put("endless").id

    def in_thread(value: Any) -> None:
        current_message().progress("began")
        gate.wait(20)

    async def on_loop(value: Any) -> None:
        current_message().progress("began")
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    handler = in_thread if kind == "thread" else on_loop
    with working(Worker(queue, handler, concurrency=2, timeout=0.1, max_tries=1)) as worker:
        eventually(lambda: worker.summary.dead and worker._shift and worker._shift.free() == 2)
        assert is_in_memory(id)
        gate.set()
        eventually(lambda: not is_in_memory(id))


# --- with a commit ------------------------------------------------------------------------------
@pytest.mark.usefixtures("short_grace")
def test_a_commit_is_told_of_the_failure_once_and_of_no_success(stage: Stage) -> None:
    policy, handler = Noting(), Endless()
    ledger = IdempotencyRecords.of(stage.store)
    delivery = EffectivelyOnceDelivery(ledger, commit_policy=policy)
    queue = stage.queue(delivery_policy=delivery)
    queue.put("endless", dedupe_key="k")

    with working(Worker(queue, handler, concurrency=2, timeout=0.1, max_tries=1)) as worker:
        eventually(lambda: worker.summary.dead)
        handler.gate.set()
        eventually(lambda: handler.ended)

    assert worker.summary == Summary(dead=1)
    assert policy.told == ["failure HandlerTimeout True"]


@pytest.mark.usefixtures("short_grace")
def test_a_commit_is_told_also_when_no_thread_can_be_started_for_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, handler, threads = Noting(), Endless(), FewThreads(monkeypatch)
    ledger = IdempotencyRecords.of(stage.store)
    queue = stage.queue(delivery_policy=EffectivelyOnceDelivery(ledger, commit_policy=policy))

    with working(Worker(queue, handler, concurrency=2, timeout=0.1, max_tries=1)) as worker:
        eventually(lambda: worker._shift and worker._shift.free() == 2)
        threads.are_all = True
        queue.put("endless", dedupe_key="k")
        eventually(lambda: worker.summary.dead)
        handler.gate.set()

    assert worker.summary == Summary(dead=1)
    assert policy.told == ["failure HandlerTimeout True"]


@pytest.mark.usefixtures("short_grace")
def test_one_that_was_cancelled_and_ends_when_it_is_given_up_is_removed_all_the_same(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, start = Endless(), threading.Thread.start
    ledger = IdempotencyRecords.of(stage.store)
    delivery = EffectivelyOnceDelivery(ledger, commit_policy=Noting())
    queue = stage.queue(delivery_policy=delivery, lease_timeout=2.0)

    def start_when_it_has_ended(thread: threading.Thread) -> None:
        if thread.name == "localqueue-given-up":
            handler.gate.set()
            eventually(lambda: worker._shift and worker._shift.free() == 2)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_when_it_has_ended)
    message = queue.put("endless", dedupe_key="k")
    with working(Worker(queue, handler, concurrency=2, timeout=1.5)) as worker:
        eventually(lambda: handler.began)
        queue.cancel(message.id)
        eventually(lambda: worker.summary != Summary())

    assert worker.summary == Summary(cancelled=1)


def test_a_loop_goes_on_while_a_commit_undoes_what_a_stop_gave_up(stage: Stage) -> None:
    policy, told, over = SlowToUndo(), asyncio.Event(), asyncio.Event()
    ledger = IdempotencyRecords.of(stage.store)
    queue = stage.queue(delivery_policy=EffectivelyOnceDelivery(ledger, commit_policy=policy))
    queue.put("endless", dedupe_key="k")

    async def handler(value: Any) -> None:
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                told.set()

    async def work() -> Summary:
        worker = Worker(queue, handler, timeout=0.1, max_tries=1)
        working = asyncio.ensure_future(worker.run_async())
        await asyncio.wait_for(told.wait(), 20)
        worker.stop(now=True)
        await asyncio.to_thread(policy.is_at_it.wait, 20)
        # Nobody does this while the loop is blocked.
        policy.gate.set()
        summary = await working
        over.set()
        return summary

    assert asyncio.run(work()) == Summary(dead=1)


# --- in the thread that called run() ------------------------------------------------------------
@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize("catches", [Exception, ZeroDivisionError])
def test_in_the_main_thread_it_is_interrupted_and_the_worker_goes_on(
    stage: Stage, catches: type[Exception]
) -> None:
    queue = stage.queue()
    queue.put_many(["endless", "plain"])

    def handler(value: str) -> None:
        deadline = time.monotonic() + 20
        while value == "endless":
            try:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            except catches:
                continue

    summary = Worker(queue, handler, timeout=0.1, max_tries=1).run(until_empty=True)

    assert summary == Summary(done=1, dead=1, returned=summary.returned)
    assert dead_errors(queue) == ["HandlerTimeout"]


@pytest.mark.usefixtures("short_grace")
def test_elsewhere_its_message_has_failed_although_nothing_can_end_it(stage: Stage) -> None:
    queue, handler = stage.queue(), Endless()
    queue.put("endless")
    worker = Worker(queue, handler, timeout=0.1, max_tries=1)
    thread = threading.Thread(target=worker.run, kwargs={"until_empty": True})
    thread.start()

    eventually(lambda: queue.stats().dead == 1)
    queue.put("plain")
    assert handler.ended == []
    handler.gate.set()
    thread.join(20)

    assert handler.ended == ["endless", "plain"]
    assert worker.summary == Summary(done=1, dead=1)


# --- on a loop ----------------------------------------------------------------------------------
@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize("listens", [False, True])
def test_a_coroutine_that_blocks_its_loop_has_failed_while_it_does(
    stage: Stage, listens: bool
) -> None:
    heard: list[str] = []
    listeners = [lambda event: heard.append(event.kind)] if listens else []
    queue, handler = stage.queue(lease_timeout=0.6, listeners=listeners), Endless()
    queue.put_many(["endless", "plain"])

    async def coroutine(value: Any) -> str:
        return handler(value)

    with working(Worker(queue, coroutine, timeout=0.1, max_tries=1)) as worker:
        eventually(lambda: dead_errors(queue) == ["HandlerTimeout"])
        assert handler.ended == []
        handler.gate.set()
        eventually(lambda: worker.summary.done)

    assert worker.summary == Summary(done=1, dead=1, returned=worker.summary.returned)
    assert heard.count("dead_lettered") == int(listens)


@pytest.mark.usefixtures("short_grace")
def test_a_coroutine_that_blocked_its_loop_and_waits_then_is_cancelled(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    queue, gate = stage.queue(), threading.Event()
    queue.put_many(["endless", "plain"])
    ended: list[str] = []

    async def handler(value: str) -> None:
        try:
            if value == "endless":
                gate.wait(20)
                await asyncio.sleep(3600)
        finally:
            ended.append(value)

    with working(Worker(queue, handler, timeout=0.1, max_tries=1)) as worker:
        eventually(lambda: queue.stats().dead == 1)
        gate.set()
        eventually(lambda: worker.summary.done)
        eventually(lambda: len(ended) == 2)

    assert worker.summary == Summary(done=1, dead=1, returned=worker.summary.returned)
    assert "and the worker has not looked for 0." in caplog.text


@pytest.mark.usefixtures("short_grace")
def test_a_coroutine_that_swallows_its_cancellation_is_left_behind(stage: Stage) -> None:
    queue = stage.queue()
    queue.put_many(["endless", "plain"])
    deadline = time.monotonic() + 20

    async def handler(value: str) -> None:
        while value == "endless":
            assert time.monotonic() < deadline
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    summary = asyncio.run(
        Worker(queue, handler, timeout=0.1, max_tries=1).run_async(until_empty=True)
    )

    assert summary == Summary(done=1, dead=1, returned=summary.returned)
    assert time.monotonic() < deadline


@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_worker_that_ends_hears_of_what_was_settled_while_its_loop_was_blocked(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    queue, handler = stage.queue(), Endless()
    queue.put("endless")
    settle, answers = stage.store.settle, threading.Event()

    def settle_and_answer_late(*args: Any, **options: Any) -> Any:
        answer = settle(*args, **options)
        assert answers.wait(20)
        return answer

    monkeypatch.setattr(stage.store, "settle", settle_and_answer_late)

    async def coroutine(value: Any) -> str:
        return handler(value)

    worker = Worker(queue, coroutine, timeout=0.1, max_tries=1)
    stops: list[Callable[[], object]] = []

    async def work() -> None:
        task, loop = asyncio.ensure_future(worker.run_async()), asyncio.get_running_loop()
        stops.append(lambda: loop.call_soon_threadsafe(task.cancel))
        with contextlib.suppress(asyncio.CancelledError):
            await task

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    eventually(lambda: queue.stats().dead == 1)
    if is_cancelled:
        stops[0]()
    else:
        worker.stop(now=True)
    handler.gate.set()
    threading.Timer(0.3, answers.set).start()
    thread.join(20)

    assert worker.summary == Summary(dead=1)
    assert queue.stats().total == 1


# --- who settles --------------------------------------------------------------------------------
def of_slot() -> tuple[Slot, QueueMessage[Any]]:
    slot, message = Slot(0), QueueMessage[Any]("id", "value", "jobs")
    slot.begin(message)
    slot.inside = True
    return slot, message


def test_a_handler_that_ended_first_is_not_given_up() -> None:
    slot, message = of_slot()
    slot.current_of(message)

    slot.inside = False
    assert slot.ends(message)

    assert not slot.give_up(message)
    assert slot.leave() is None


def test_a_handler_that_was_given_up_settles_nothing() -> None:
    slot, message = of_slot()
    slot.current_of(message)

    assert slot.give_up(message)
    assert not slot.give_up(message), "twice"
    successor = slot.leave()
    slot.inside = False

    assert not slot.ends(message)
    assert successor is not None
    assert (successor.number, successor.count, slot.is_left) == (0, 1, True)


def test_a_delivery_whose_commit_begins_is_not_given_up() -> None:
    slot, message = of_slot()
    slot.beginning = True

    assert not slot.give_up(message)


def test_a_runner_that_comes_back_before_it_is_replaced_keeps_its_place() -> None:
    slot, message = of_slot()
    slot.current_of(message)
    assert slot.give_up(message)

    slot.inside = False
    assert not slot.ends(message)

    assert slot.leave() is None
    assert not slot.is_left
