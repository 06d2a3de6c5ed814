"""A listener hears everything from when it listens, and never breaks the queue."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localqueue.errors import WrongType
from localqueue.queue import PersistentQueue
from localqueue.stores.memory import MemoryQueueStore
from localqueue.telemetry.events import Enqueued, Event, Leased
from tests.unit.queue.phrases import Background
from tests.unit.stores.phrases import run_program
from tests.unit.telemetry.phrases import Heard, NewQueue, Queue

Calls = Callable[[Queue], Any]


def whole_life(queue: Any) -> None:
    """Every call that tells something, once."""
    queue.put("a")
    queue.put_many(["b", "c"])
    queue.release(queue.get_message(), error=OSError("x"))
    queue.ack(queue.get_message())
    queue.dead_letter(queue.get_message())
    queue.purge()


class Raises:
    """A listener that raises this at every event."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.called = 0

    def __call__(self, event: Event) -> None:
        self.called += 1
        raise self.error

    def __repr__(self) -> str:
        return "<the listener>"


# --- listening ----------------------------------------------------------------------------------
def test_a_listener_hears_from_when_it_listens_until_it_stops(new_queue: NewQueue) -> None:
    queue, heard = new_queue(listeners=()), Heard()
    queue.put("before")

    stop = queue.listen(heard)
    message = queue.put("while")
    stop()
    queue.put("after")
    stop()

    assert [event.message_id for event in heard.events] == [message.id]


def test_stopping_one_listener_leaves_the_others(new_queue: NewQueue, heard: Heard) -> None:
    queue, other = new_queue(), Heard()
    stop = queue.listen(other)
    queue.put("a")

    stop()
    queue.put("b")

    assert (len(heard.events), len(other.events)) == (2, 1)
    assert queue.telemetry.listeners == (heard,)


def test_a_listener_that_stops_itself_hears_no_more(queue: Queue) -> None:
    heard: list[Event] = []

    def once(event: Event) -> None:
        heard.append(event)
        stop()

    stop = queue.listen(once)
    queue.put("a")
    queue.put("b")

    assert len(heard) == 1


def test_an_object_hears_only_of_its_own_calls(new_queue: NewQueue, heard: Heard) -> None:
    queue, other = new_queue(), new_queue(listeners=())

    other.put("a")
    queue.get_message()

    assert heard.kinds() == ["leased"]


@pytest.mark.parametrize("listener", [None, "text", 3])
def test_what_cannot_be_called_cannot_listen(queue: Queue, listener: Any) -> None:
    with pytest.raises(WrongType, match="must be callable"):
        queue.listen(listener)


def test_listeners_are_given_as_an_iterable(new_queue: NewQueue, heard: Heard) -> None:
    with pytest.raises(WrongType, match="iterable"):
        new_queue(listeners=heard)


async def awaited(event: Event) -> None: ...


class AwaitedObject:
    async def __call__(self, event: Event) -> None: ...


@pytest.mark.parametrize("listener", [awaited, AwaitedObject(), AwaitedObject().__call__])
def test_a_coroutine_function_would_never_run_and_is_refused(queue: Queue, listener: Any) -> None:
    with pytest.raises(WrongType, match="not awaited"):
        queue.listen(listener)


def test_events_are_told_in_the_thread_of_the_call(new_queue: NewQueue) -> None:
    told: list[int] = []
    queue = new_queue(listeners=[lambda _: told.append(threading.get_ident())])

    def put() -> int:
        queue.put("a")
        return threading.get_ident()

    assert [Background(put).result(), put()] == told


def test_a_task_hears_its_own_calls_on_its_loop(new_queue: NewQueue) -> None:
    told: list[asyncio.AbstractEventLoop] = []
    queue = new_queue(listeners=[lambda _: told.append(asyncio.get_running_loop())])

    async def put() -> asyncio.AbstractEventLoop:
        await queue.aio.put("a")
        return asyncio.get_running_loop()

    assert told == [asyncio.run(put())] * len(told)
    assert told


def test_threads_may_listen_and_stop_while_others_put(queue: Queue) -> None:
    done = threading.Event()

    def come_and_go() -> int:
        times = 0
        while not done.is_set():
            queue.listen(lambda _: None)()
            times += 1
        return times

    guests = [Background(come_and_go) for _ in range(2)]
    for number in range(50):
        queue.put(number)
    done.set()

    assert all(guest.result() for guest in guests)
    assert len(queue.telemetry.listeners) == 1


# --- errors -------------------------------------------------------------------------------------
def test_what_a_listener_raises_reaches_nobody_and_is_logged_once(
    new_queue: NewQueue, calls: Calls, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Raises(ValueError("broken"))
    queue = new_queue(listeners=[broken, heard])

    whole_life(calls(queue))

    assert broken.called == len(heard.events) == 10
    assert queue.stats().total == 0
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("localqueue.telemetry", logging.ERROR)
    assert "<the listener>" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[1] is broken.error


def test_each_broken_listener_is_logged(
    new_queue: NewQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue = new_queue(listeners=[Raises(ValueError()), Raises(KeyError())])

    whole_life(queue)

    assert len(caplog.records) == 2


def test_a_log_that_fails_breaks_nothing_either(queue: Queue) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("the log is full")

    logger, handler = logging.getLogger("localqueue.telemetry"), Broken()
    logger.addHandler(handler)
    queue.listen(Raises(ValueError()))
    try:
        queue.put("a")
    finally:
        logger.removeHandler(handler)

    assert queue.qsize() == 1


@pytest.mark.parametrize(
    "kind", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError]
)
def test_in_another_thread_even_an_exit_is_only_the_listeners_own(
    new_queue: NewQueue, caplog: pytest.LogCaptureFixture, kind: type[BaseException]
) -> None:
    broken = Raises(kind())
    queue = new_queue(listeners=[broken])

    Background(lambda: whole_life(queue)).result()

    assert broken.called == 10
    assert len(caplog.records) == 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_a_signal_raises_while_a_listener_runs_ends_the_program_and_loses_no_message(
    new_queue: NewQueue, calls: Calls, heard: Heard, kind: type[BaseException]
) -> None:
    """Ctrl-C and ``sys.exit`` in a SIGTERM handler come up in the main thread, wherever it is."""
    queue = new_queue(listeners=[])
    queue.put("a")
    queue.listen(Raises(kind()))
    queue.listen(heard)

    with pytest.raises(kind):
        calls(queue).get_message()

    assert heard.kinds() == ["leased", "released"]
    assert queue.stats().ready == 1


def test_an_interrupt_in_a_listener_leaves_what_was_settled(new_queue: NewQueue) -> None:
    queue = new_queue(listeners=[])
    queue.put("a")
    queue.get()
    queue.listen(Raises(KeyboardInterrupt()))

    with pytest.raises(KeyboardInterrupt):
        queue.task_done()

    queue.join()
    assert queue.stats().total == 0


# --- listeners that use the queue ---------------------------------------------------------------
def test_a_listener_may_use_the_queue(new_queue: NewQueue, calls: Calls) -> None:
    seen: list[tuple[str, int]] = []
    queue = new_queue()
    queue.listen(lambda event: seen.append((event.kind, queue.stats().total)))

    whole_life(calls(queue))

    assert seen[:3] == [("enqueued", 1), ("enqueued", 3), ("enqueued", 3)]
    assert seen[-1] == ("purged", 0)


def test_what_a_listener_does_to_its_queue_is_told_to_the_others_only(
    new_queue: NewQueue, calls: Calls, heard: Heard
) -> None:
    def again(event: Event) -> None:
        if isinstance(event, Enqueued):
            queue.put("from the listener")

    queue = new_queue(listeners=[again, heard])

    calls(queue).put("a")

    assert heard.kinds() == ["enqueued", "enqueued"]
    assert queue.qsize() == 2


def test_listeners_that_put_for_each_other_come_to_an_end(new_queue: NewQueue) -> None:
    def puts(event: Event) -> None:
        queue.put("ping")

    def puts_too(event: Event) -> None:
        queue.put("pong")

    queue = new_queue(listeners=[puts, puts_too])

    queue.put("a")

    assert queue.qsize() == 1 + 2 + 2


def test_a_listener_that_settles_what_was_just_leased_makes_the_receipt_stale(
    new_queue: NewQueue,
) -> None:
    def steals(event: Event) -> None:
        if isinstance(event, Leased):
            queue.ack(event.message_id or "")

    queue = new_queue(listeners=[steals])
    queue.put("a")

    assert queue.ack(queue.get_message()) is False


def test_a_listener_waits_for_a_thread_that_uses_the_same_queue(new_queue: NewQueue) -> None:
    """Nothing that a call holds is held while listeners are told."""

    def puts_elsewhere(event: Event) -> None:
        Background(lambda: other.put("from a thread")).result()

    other = new_queue(listeners=())
    queue = new_queue(listeners=[puts_elsewhere])

    queue.put("a")
    queue.get()
    queue.task_done()

    assert queue.qsize() == 3


def test_a_closed_queue_tells_nothing_and_breaks_nothing(heard: Heard) -> None:
    store = MemoryQueueStore()
    queue: Queue = PersistentQueue("jobs", store=store, listeners=[heard])
    queue.close()

    stop = queue.listen(Heard())
    stop()

    assert heard.take() == []


# --- forks --------------------------------------------------------------------------------------
def test_a_forked_child_hears_its_own_calls(tmp_path: Path) -> None:
    run_program(
        """
        import os, sys, threading
        from localqueue import PersistentQueue

        inside, may_end = threading.Event(), threading.Event()
        parent, kinds = os.getpid(), []

        def listener(event):
            kinds.append(event.kind)
            if os.getpid() == parent:
                inside.set()
                may_end.wait()

        queue = PersistentQueue("jobs", store_path=sys.argv[1], listeners=[listener])
        held = threading.Event()

        def hold():  # another thread may just begin to listen
            with queue.telemetry._lock:
                held.set()
                may_end.wait()

        threads = [threading.Thread(target=hold), threading.Thread(target=queue.put, args=("a",))]
        for thread in threads:
            thread.start()
        held.wait()
        inside.wait()
        child = os.fork()
        if child == 0:
            kinds.clear()
            queue.listen(lambda event: None)
            queue.put("child")
            os._exit(0 if kinds == ["enqueued"] else 1)
        assert os.waitpid(child, 0)[1] == 0
        may_end.set()
        for thread in threads:
            thread.join()
        """,
        tmp_path / "queue.sqlite3",
    )
