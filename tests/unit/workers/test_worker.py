"""What is special to one kind of worker, and what a worker refuses."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localqueue.codec import JSON_CODEC
from localqueue.errors import (
    ConfigurationError,
    DamagedMessage,
    HandlerTimeout,
    InvalidArgument,
    LeaseLost,
    StoreBusy,
    WorkerStopped,
    WrongType,
)
from localqueue.message import QueueMessage
from localqueue.queue import PersistentQueue
from localqueue.resilience.circuit_breaker import Circuit, CircuitBreaker
from localqueue.resilience.rate_limiter import RateLimit
from localqueue.spec import QueueSpec
from localqueue.stores.memory import MemoryQueueStore
from localqueue.telemetry.events import Event
from localqueue.workers import Backoff, CurrentMessage, Summary, Worker, current_message
from localqueue.workers.bell import ThreadBell
from localqueue.workers.context import Slot
from localqueue.workers.prefetch import MOST, Prefetch
from localqueue.workers.shift import Shift
from localqueue.workers.shutdown import Shutdown
from tests.unit.workers.phrases import Stage, dead_errors, eventually, working


async def nothing(value: Any) -> None:
    """Handles it."""


# --- threads ------------------------------------------------------------------------------------
def test_one_runner_is_the_thread_that_called_run(stage: Stage) -> None:
    database = sqlite3.connect(":memory:")  # which may be used in this thread only
    database.execute("CREATE TABLE seen (value)")
    queue = stage.queue()
    queue.put_many([1, 2, 3])

    def handler(value: int) -> None:
        database.execute("INSERT INTO seen VALUES (?)", (value,))

    summary = Worker(queue, handler).run(until_empty=True)

    with contextlib.closing(database):
        assert database.execute("SELECT count(*) FROM seen").fetchone() == (3,)
    assert summary == Summary(done=3)


def test_several_runners_work_at_the_same_time(stage: Stage) -> None:
    queue = stage.queue()
    queue.put_many(range(3))
    together = threading.Barrier(3, timeout=20)

    summary = Worker(queue, lambda value: together.wait(), concurrency=3).run(until_empty=True)

    assert summary == Summary(done=3, returned=summary.returned)


def test_a_handler_that_ends_late_has_failed_whatever_it_returned(stage: Stage) -> None:
    queue = stage.queue()
    queue.put("slow")
    seen: list[Any] = []

    def handler(value: Any) -> str:
        current = current_message()
        seen.append(current.wait(20))
        with pytest.raises(HandlerTimeout):
            current.check()
        return "done after all"

    worker = Worker(queue, handler, timeout=0.05, max_tries=1)

    assert worker.run(until_empty=True) == Summary(dead=1)
    assert seen == [True]


def test_a_handler_that_outlives_its_worker_has_its_result_dropped(stage: Stage) -> None:
    queue = stage.queue()
    message = queue.put("slow")
    began, told, gate = threading.Event(), threading.Event(), threading.Event()
    reasons: list[Any] = []

    def handler(value: Any) -> None:
        current = current_message()
        began.set()
        current.wait(20)
        reasons.append(current.reason)
        told.set()
        gate.wait(20)

    worker = Worker(queue, handler, concurrency=2, drain_timeout=0.05).start()
    assert began.wait(20)
    worker.stop()
    assert worker.join(20)
    assert told.wait(20)
    gate.set()

    assert isinstance(reasons[0], WorkerStopped)
    assert queue.inspect(message.id) is not None
    assert worker.summary == Summary(released=1)


# --- event loops --------------------------------------------------------------------------------
async def beside_others(queue: PersistentQueue[Any], count: int) -> tuple[Summary, list[int]]:
    """A worker beside other tasks of a loop."""
    seen: list[int] = []

    async def handler(value: int) -> None:
        await asyncio.sleep(0)
        seen.append(value)

    worker = Worker(queue, handler, concurrency=4)
    running = asyncio.create_task(worker.run_async(until_empty=True))
    await queue.aio.put_many(range(count))
    return await running, seen


def test_a_worker_runs_on_the_loop_of_others(stage: Stage) -> None:
    queue = stage.queue()
    queue.put(-1)

    summary, seen = asyncio.run(beside_others(queue, 10))

    assert summary.done == 11
    assert sorted(seen) == list(range(-1, 10))


def test_a_cancelled_worker_gives_back_what_it_holds(stage: Stage) -> None:
    queue = stage.queue()
    message = queue.put("never done")
    cancelled = []

    async def main() -> None:
        began = asyncio.Event()
        worker = Worker(queue, partial(handler, began))
        running = asyncio.create_task(worker.run_async())
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    async def handler(began: asyncio.Event, value: Any) -> None:
        began.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(value)
            raise

    asyncio.run(main())

    found = queue.inspect(message.id)
    assert cancelled == ["never done"]
    assert found is not None
    assert (found.state, found.failures) == ("ready", 0)


def test_a_handler_on_a_loop_may_use_timeouts_of_its_own(stage: Stage) -> None:
    queue = stage.queue()
    queue.put_many(range(5))
    late: list[int] = []

    async def handler(value: int) -> None:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(3600)
        except TimeoutError:
            late.append(value)

    assert Worker(queue, handler, timeout=60).run(until_empty=True).done == 5
    assert late == list(range(5))


def test_a_handler_that_was_cancelled_leaves_nothing_to_the_next(stage: Stage) -> None:
    queue = stage.queue()
    queue.put_many(["too long", "cancels itself", "plain"])
    seen: list[str] = []

    async def handler(value: str) -> None:
        seen.append(value)
        if value == "too long":
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
        if value == "cancels itself":
            raise asyncio.CancelledError

    summary = Worker(queue, handler, timeout=0.05, max_tries=1).run(until_empty=True)

    assert seen == ["too long", "cancels itself", "plain"]
    assert summary == Summary(done=1, dead=2, returned=summary.returned)


@pytest.mark.parametrize("end", ["return", "raise"])
@pytest.mark.parametrize("listens", [False, True])
def test_a_handler_that_blocks_the_loop_for_too_long_has_failed(
    stage: Stage, end: str, listens: bool, caplog: pytest.LogCaptureFixture
) -> None:
    queue = stage.queue(listeners=[lambda event: None] if listens else [])
    queue.put_many(["slow", "next"])

    async def handler(value: str) -> None:
        if value == "slow":
            time.sleep(0.3)  # noqa: ASYNC251 - which is what it should not do
            if end == "raise":
                raise ValueError

    summary = Worker(queue, handler, timeout=0.1, max_tries=1).run(until_empty=True)

    assert (summary.done, summary.dead) == (1, 1)
    assert dead_errors(queue) == ["HandlerTimeout"]
    assert any("without letting go of the event loop" in text for text in caplog.messages)


def test_a_busy_worker_lets_other_tasks_have_the_loop(stage: Stage) -> None:
    queue = stage.queue()
    queue.put_many(range(300))

    async def handler(value: int) -> None:
        busy = time.monotonic() + 0.001
        while time.monotonic() < busy:
            pass

    async def main() -> int:
        running = asyncio.create_task(Worker(queue, handler).run_async(until_empty=True))
        turns = 0
        while not running.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(main()) > 30


# --- what a handler knows -----------------------------------------------------------------------
def test_a_handler_knows_its_message(stage: Stage) -> None:
    queue = stage.queue()
    message = queue.put("value", headers={"tenant": "a"})
    seen: list[CurrentMessage] = []

    def handler(value: str) -> None:
        seen.append(current_message())
        assert current_message() is seen[-1]

    Worker(queue, handler, worker_id="w").run(until_empty=True)

    (current,) = seen
    assert (current.message.id, current.attempt, current.message.value) == (message.id, 1, "value")
    assert current.message.headers == {"tenant": "a"}
    assert (current.cancelled, current.lease_lost, current.reason) == (False, False, None)
    assert current.elapsed() >= 0
    current.check()


def test_threads_that_a_handler_starts_with_its_context_know_it_too(stage: Stage) -> None:
    queue = stage.queue()
    queue.put_many([1, 2])
    seen: list[tuple[int, int]] = []

    def handler(value: int) -> None:
        with ThreadPoolExecutor(1) as pool:
            current = pool.submit(copy_context().run, current_message).result()
        seen.append((value, current.message.value))

    Worker(queue, handler).run(until_empty=True)

    assert seen == [(1, 1), (2, 2)]


def test_outside_of_a_handler_there_is_no_current_message(stage: Stage) -> None:
    queue = stage.queue()
    queue.put(1)
    Worker(queue, lambda value: current_message()).run(until_empty=True)

    with pytest.raises(ConfigurationError):
        current_message()


@pytest.mark.parametrize("report", [-0.5, 1.5, "", "prefetched"])
def test_progress_that_says_nothing_is_refused(stage: Stage, report: Any) -> None:
    queue = stage.queue()
    queue.put(1)
    refused: list[Exception] = []

    def handler(value: int) -> None:
        try:
            current_message().progress(report)
        except ValueError as error:
            refused.append(error)

    Worker(queue, handler).run(until_empty=True)

    assert len(refused) == 1


def test_a_lost_lease_is_the_reason_to_end(stage: Stage) -> None:
    queue = stage.queue(lease_timeout=0.3)
    message = queue.put("slow")
    reasons: list[Any] = []

    def handler(value: Any) -> None:
        current = current_message()
        current.wait(20)
        reasons.append((current.lease_lost, type(current.reason)))

    with working(Worker(queue, handler)):
        eventually(lambda: queue.stats().inflight)
        queue.dead_letter(message.id)
        eventually(lambda: reasons)

    assert reasons == [(True, LeaseLost)]
    assert queue.stats().dead == 1


RIVAL = """
import sys
from queue import Empty
from localqueue import PersistentQueue

queue = PersistentQueue("jobs", store_path=sys.argv[1])
try:
    print("took", queue.get_message(timeout=3.0).value)
except Empty:
    print("got nothing")
"""


@pytest.mark.parametrize("is_async", [False, True])
def test_a_lease_is_held_while_its_handler_holds_the_interpreters_lock(
    stage: Stage, is_async: bool
) -> None:
    queue = stage.queue(lease_timeout=2.0)
    queue.put("job")
    rivals: list[subprocess.Popen[str]] = []

    def handler(value: str) -> None:
        current_message().wait(1.0)  # a keeper needs a moment to start
        program = [sys.executable, "-c", RIVAL, str(stage.store.path)]
        rivals.append(subprocess.Popen(program, stdout=subprocess.PIPE, text=True))
        ctypes.PyDLL(None).usleep(4_000_000)  # no thread of this process runs meanwhile

    async def coroutine(value: str) -> None:
        handler(value)

    summary = Worker(queue, coroutine if is_async else handler).run(until_empty=True)

    assert rivals[0].communicate(timeout=60)[0] == "got nothing\n"
    assert summary == Summary(done=1)


# --- listeners ----------------------------------------------------------------------------------
def test_listeners_hear_of_leases_handlers_and_settlements(stage: Stage) -> None:
    heard: list[Event] = []
    queue = stage.queue(listeners=[heard.append])
    queue.put("a")

    Worker(queue, lambda value: None, worker_id="w").run(until_empty=True)

    assert [event.kind for event in heard] == [
        "enqueued", "leased", "handler_started", "handler_ended", "acked",
    ]  # fmt: skip
    assert {event.worker for event in heard[1:]} == {"w"}


def test_listeners_hear_of_failures(stage: Stage) -> None:
    heard: list[Event] = []
    queue = stage.queue(listeners=[heard.append])
    queue.put("a")

    async def handler(value: Any) -> None:
        raise ValueError(value)

    Worker(queue, handler, max_tries=2, backoff=0).run(until_empty=True)

    assert [event.kind for event in heard] == [
        "enqueued",
        *("leased", "handler_started", "handler_ended", "retried"),
        *("leased", "handler_started", "handler_ended", "dead_lettered"),
    ]


class Picky:
    """JSON, but one value cannot be read any more."""

    id = "picky"

    def encode(self, value: Any) -> bytes:
        return JSON_CODEC.encode(value)

    def decode(self, body: bytes) -> Any:
        value = JSON_CODEC.decode(body)
        if value == "broken":
            raise DamagedMessage("what is stored is not what was put")
        return value

    def fingerprint(self, value: Any, body: bytes) -> int:
        return JSON_CODEC.fingerprint(value, body)

    def as_dict(self) -> dict[str, Any]:
        return {"type": self.id}


# --- trouble ------------------------------------------------------------------------------------
def test_a_value_that_cannot_be_decoded_is_a_dead_letter() -> None:
    with PersistentQueue[Any]("jobs", store=MemoryQueueStore(), codec_policy=Picky()) as queue:
        queue.put_many(["broken", "sound"])
        seen: list[Any] = []

        summary = Worker(queue, seen.append).run(until_empty=True)

        assert seen == ["sound"]
        assert summary == Summary(done=1, dead=1)
        assert queue.stats().dead == 1


def test_a_busy_store_is_waited_for() -> None:
    class Moody(MemoryQueueStore):
        refusals = 2

        def settle_and_lease(self, settles: Any, request: Any, *, now: Any) -> Any:
            if self.refusals:
                self.refusals -= 1
                raise StoreBusy("not now")
            return super().settle_and_lease(settles, request, now=now)

    with PersistentQueue[Any]("jobs", store=Moody()) as queue:
        queue.put_many(range(5))

        assert Worker(queue, lambda value: None).run(until_empty=True) == Summary(done=5)


class BadErrorCode(Exception):
    @property
    def exit_code(self) -> int:
        raise RuntimeError("nobody knows")


def test_an_error_that_cannot_be_asked_anything_fails_its_message_only(stage: Stage) -> None:
    queue = stage.queue()
    queue.put_many(["bad", "good"])

    def handler(value: str) -> None:
        if value == "bad":
            raise BadErrorCode("with a text")

    assert Worker(queue, handler, max_tries=1).run(until_empty=True) == Summary(done=1, dead=1)
    (dead,) = queue.dead_letters()
    assert (dead.last_error or {})["message"] == "with a text"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_listener_in_the_thread_of_a_worker_ends_nothing(
    stage: Stage, kind: type[BaseException], concurrency: int
) -> None:
    queue = stage.queue()
    queue.put_many(range(3))

    def listener(event: Event) -> None:
        raise kind

    queue.listen(listener)
    worker = Worker(queue, lambda value: None, concurrency=concurrency).start(until_empty=True)

    assert worker.join(20)
    assert worker.summary == Summary(done=3)


# --- stopping -----------------------------------------------------------------------------------
@pytest.mark.parametrize("is_async", [False, True])
def test_no_handler_begins_after_stop(stage: Stage, is_async: bool) -> None:
    queue = stage.queue()
    queue.put_many(range(100))
    seen: list[int] = []

    def handler(value: int) -> None:
        seen.append(value)
        if value == 50:
            worker.stop()

    async def coroutine(value: int) -> None:
        handler(value)

    worker = Worker(queue, coroutine if is_async else handler)
    summary = worker.run()

    assert seen == list(range(51))
    assert summary.returned > 0, "nothing was leased ahead, so this proves nothing"
    assert (summary.done, queue.stats().ready) == (51, 49)


def test_a_hung_handler_is_left_behind_by_a_worker_in_the_background(stage: Stage) -> None:
    queue = stage.queue()
    queue.put("hangs")
    began, gate = threading.Event(), threading.Event()

    def handler(value: Any) -> None:
        began.set()
        gate.wait(60)

    worker = Worker(queue, handler).start()
    try:
        assert began.wait(20)
        worker.stop(now=True)

        assert worker.join(20)
        assert worker.summary == Summary(released=1)
        assert queue.stats().ready == 1
    finally:
        gate.set()


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_trial_that_a_stop_prevents_can_be_made_again(stage: Stage, concurrency: int) -> None:
    seconds = [0.0]

    class Stopping(Circuit):
        """Somebody stops the worker the moment its trial is allowed."""

        def allow(self) -> bool:
            worker.stop()
            return super().allow()

    breaker = Stopping(CircuitBreaker(failures=1, cooldown=1.0), lambda: seconds[0])
    breaker.failed()
    seconds[0] = 2.0
    queue = stage.queue()
    queue.put("trial")
    seen: list[Any] = []
    worker = Worker(queue, seen.append, concurrency=concurrency, circuit_breaker=breaker)

    assert worker.run() == Summary(returned=1)
    assert seen == []
    assert breaker.delay() == 0


# --- several queues -----------------------------------------------------------------------------
def test_queues_that_are_leased_apart_take_turns_too(stage: Stage) -> None:
    queues = [
        stage.queue(name, lease_timeout=timeout)
        for name, timeout in (("a", 30), ("b", 30), ("c", 60), ("d", 60))
    ]
    for queue in queues:
        queue.put_many(range(10))
    order: list[str] = []

    def handler(value: int) -> None:
        order.append(current_message().message.queue)

    Worker(queues, handler, prefetch=0).run(until_empty=True)

    assert sorted(order[:4]) == ["a", "b", "c", "d"]
    assert sorted(order[4:8]) == ["a", "b", "c", "d"]


def test_a_paused_queue_has_nothing_left_for_a_worker(stage: Stage) -> None:
    paused, other = stage.queue("paused"), stage.queue("other")
    for queue in (paused, other):
        queue.put_many(range(3))
    paused.pause()

    worker = Worker([paused, other], lambda value: None).start(until_empty=True)
    try:
        assert worker.join(10)
    finally:
        worker.stop()

    assert worker.summary == Summary(done=3)
    assert paused.stats().ready == 3


# --- arguments ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda queue: Worker("jobs", print), WrongType),  # type: ignore[arg-type]
        (lambda queue: Worker(7, print), WrongType),  # type: ignore[arg-type]
        (lambda queue: Worker([], print), InvalidArgument),
        (lambda queue: Worker([queue, queue], print), InvalidArgument),
        (lambda queue: Worker(queue, None), WrongType),  # type: ignore[arg-type]
        (lambda queue: Worker(queue, print, kind="fibre"), InvalidArgument),  # type: ignore[arg-type]
        (lambda queue: Worker(queue, print, kind="asyncio"), ConfigurationError),
        (lambda queue: Worker(queue, nothing, kind="thread"), ConfigurationError),
        (lambda queue: Worker(queue, print, concurrency=0), InvalidArgument),
        (lambda queue: Worker(queue, print, prefetch=-1), InvalidArgument),
        (lambda queue: Worker(queue, print, timeout=0), InvalidArgument),
        (lambda queue: Worker(queue, print, max_tries=-1), InvalidArgument),
        (lambda queue: Worker(queue, print, backoff=-1), InvalidArgument),
        (lambda queue: Worker(queue, print, worker_id=""), ValueError),
        (lambda queue: Worker(queue, print, drain_timeout="long"), WrongType),  # type: ignore[arg-type]
    ],
)
def test_what_no_worker_can_do_is_refused_when_it_is_made(
    stage: Stage, make: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        make(stage.queue())


def test_queues_of_different_stores_need_a_worker_each(stage: Stage) -> None:
    with (
        PersistentQueue[Any]("other", store=MemoryQueueStore()) as other,
        pytest.raises(ConfigurationError, match="a worker for each store"),
    ):
        Worker([stage.queue(), other], print)


def test_queues_of_different_files_are_refused_before_any_is_opened(tmp_path: Path) -> None:
    one, same, two = tmp_path / "one", tmp_path / "." / "one", tmp_path / "two"

    with pytest.raises(ConfigurationError, match="a worker for each store"):
        Worker([PersistentQueue("a", store_path=one), of_url("b", two)], print)
    Worker([PersistentQueue("a", store_path=one), of_url("b", same)], print)

    assert list(tmp_path.iterdir()) == []


def of_url(name: str, path: Path) -> PersistentQueue[Any]:
    return PersistentQueue(name, store=f"sqlite:///{path}")


@pytest.mark.parametrize("given", [5, "5/s", RateLimit, CircuitBreaker(failures=1, cooldown=1)])
def test_a_rate_limit_is_a_rate_limit(stage: Stage, given: Any) -> None:
    with pytest.raises(WrongType, match="rate_limit must be a RateLimit"):
        Worker(stage.queue(), print, rate_limit=given)


@pytest.mark.parametrize("given", [5, True, CircuitBreaker, RateLimit(5)])
def test_a_circuit_breaker_is_a_circuit_breaker(stage: Stage, given: Any) -> None:
    with pytest.raises(WrongType, match="circuit_breaker must be a CircuitBreaker"):
        Worker(stage.queue(), print, circuit_breaker=given)


def test_a_worker_runs_once_at_a_time(stage: Stage) -> None:
    with (
        Worker(stage.queue(), print) as worker,
        pytest.raises(ConfigurationError, match="runs already"),
    ):
        worker.run()


def test_a_coroutine_function_makes_an_asyncio_worker(stage: Stage) -> None:
    class Handler:
        async def __call__(self, value: Any) -> None:
            """Handles it."""

    queue = stage.queue()

    assert Worker(queue, nothing).kind == "asyncio"
    assert Worker(queue, Handler()).kind == "asyncio"
    assert Worker(queue, print).kind == "thread"


def test_the_spec_of_a_queue_describes_its_workers(stage: Stage) -> None:
    spec = QueueSpec("jobs").with_retry(max_retries=2).with_release_delay(0.01)
    queue: PersistentQueue[Any] = spec.build_queue(store=stage.store)
    queue.put("a")
    attempts: list[int] = []

    def handler(value: Any) -> None:
        attempts.append(current_message().attempt)
        raise ValueError

    Worker(queue, handler, backoff=Backoff(first=0)).run(until_empty=True)

    assert attempts == [1, 2]


# --- leasing ahead ------------------------------------------------------------------------------
def test_nothing_is_leased_ahead_before_a_handler_has_ended() -> None:
    assert Prefetch(4, 30.0, None).ahead() == 0


def test_handlers_that_only_began_tell_nothing_of_how_long_one_takes() -> None:
    slots = [Slot(0), Slot(1)]
    shift = Shift(slots, Shutdown(1.0), ThreadBell(), until_empty=False)
    for slot in slots:
        slot.wake()
        slot.begin(QueueMessage("id", None, "jobs"))

    assert shift.worked()[0] == 0
    slots[0].rest()
    assert shift.worked()[0] == 1


@pytest.mark.parametrize(
    ("seconds", "ahead"), [(0.000_01, MOST), (0.01, 10), (0.05, 2), (0.2, 0), (10.0, 0)]
)
def test_as_many_are_leased_ahead_as_are_begun_in_a_moment(seconds: float, ahead: int) -> None:
    prefetch = Prefetch(1, 30.0, None)

    prefetch.measure(10, 10 * seconds)

    assert prefetch.ahead() == ahead


def test_no_more_are_leased_ahead_than_fit_in_a_part_of_the_lease() -> None:
    prefetch = Prefetch(1, 0.1, None)

    prefetch.measure(10, 0.01)

    assert prefetch.ahead() == 10


def test_a_handler_that_became_slow_is_noticed() -> None:
    prefetch = Prefetch(1, 30.0, None)
    prefetch.measure(100, 0.001)

    prefetch.measure(0, 5.0)

    assert prefetch.ahead() == 0


def test_the_option_limits_what_is_leased_ahead(stage: Stage) -> None:
    queue = stage.queue()
    queue.put_many(range(50))
    most: list[int] = []

    def handler(value: int) -> None:
        most.append(queue.stats().inflight)

    Worker(queue, handler, prefetch=3).run(until_empty=True)

    assert max(most) <= 4


def test_progress_reaches_the_listener_with_its_message(stage: Stage) -> None:
    queue = stage.queue()
    message = queue.put(1)
    heard: list[tuple[QueueMessage[Any], str]] = []

    Worker(
        queue,
        lambda value: current_message().progress(0.25),
        on_progress=lambda *report: heard.append(report),
    ).run(until_empty=True)

    assert [(told.id, note) for told, note in heard] == [(message.id, "25%")]
