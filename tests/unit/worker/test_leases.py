"""Leases hold while a handler runs; what is lost is not acknowledged; what is killed comes back."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
from tenacity import wait_fixed, wait_none

from localqueue import HandlerCancelled, MemoryQueueStore, PersistentQueue, SQLiteQueueStore
from localqueue.worker import persistent_worker
from localqueue.worker.lease_watch import retire_watches, watch_over
from localqueue.workers.context import current_message
from tests.unit.worker.own_commit import Message, OwnCommit, committing

Queue = PersistentQueue[Any]

KILLED = """
import sys, time
from localqueue import PersistentQueue, SQLiteQueueStore
from localqueue.worker import persistent_worker

queue = PersistentQueue("jobs", store=SQLiteQueueStore(sys.argv[1]), lease_timeout=600)

@persistent_worker(queue, worker_id="victim")
def handle(value):
    print("began", flush=True)
    time.sleep(600)

handle()
"""


def short_leases() -> Queue:
    return PersistentQueue("jobs", store=MemoryQueueStore(), lease_timeout=0.3)


def test_a_lease_is_held_for_as_long_as_the_handler_runs(kind: Any) -> None:
    queue = short_leases()
    put = queue.put("job")

    def work(value: str) -> bool:
        told = current_message().wait(1.0)  # more than three leases
        return told or queue.qsize() > 0

    assert kind.worker(queue, work)() is False

    assert queue.inspect(put.id) is None
    assert [event.kind for event in queue.history(put.id)].count("leased") == 1


def test_a_lease_is_held_while_the_worker_waits_for_the_next_try(kind: Any) -> None:
    queue = short_leases()
    put = queue.put("job")
    tries: list[float] = []

    def work(value: str) -> None:
        tries.append(time.monotonic())
        if len(tries) < 2:
            raise KeyError

    kind.worker(queue, work, wait=wait_fixed(1.0))()

    assert tries[1] - tries[0] >= 1.0
    assert [event.kind for event in queue.history(put.id)].count("leased") == 1


def test_the_result_of_a_handler_that_lost_its_lease_is_dropped_with_a_warning(
    kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    queue = short_leases()
    put = queue.put("job")

    def work(value: str) -> str:
        queue.release(put.id)  # an operator takes it away
        assert current_message().wait(30)
        assert current_message().lease_lost
        return "too late"

    assert kind.worker(queue, work)() is None

    assert "lease was over" in caplog.text
    assert queue.qsize() == 1


def test_a_lease_that_is_lost_between_two_tries_ends_them(
    kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    queue = short_leases()
    put = queue.put("job")
    calls: list[str] = []

    def work(value: str) -> None:
        calls.append(value)
        queue.release(put.id)
        raise KeyError

    began = time.monotonic()
    assert kind.worker(queue, work, wait=wait_fixed(60))() is None

    assert time.monotonic() - began < 30
    assert calls == ["job"]
    assert "lease was over" in caplog.text
    released = queue.inspect(put.id)
    assert released is not None
    assert released.failures == 0


def test_a_lease_that_was_lost_without_a_word_is_not_acknowledged(kind: Any, queue: Queue) -> None:
    put = queue.put("job")
    others: list[Any] = []

    def work(value: str) -> str:
        queue.release(put.id)
        others.append(queue.get_message())
        return "too late"

    assert kind.worker(queue, work)() is None

    assert queue.ack(others[0])


def test_a_message_can_be_cancelled_while_it_runs(kind: Any) -> None:
    queue = short_leases()
    put = queue.put("job")

    def work(value: str) -> None:
        queue.cancel(put.id)
        current_message().wait(30)
        current_message().check()

    with pytest.raises(HandlerCancelled):
        kind.worker(queue, work, max_tries=3, wait=wait_none())()

    assert queue.inspect(put.id) is None
    assert queue.history(put.id)[-1].kind == "cancelled"


def test_progress_is_in_the_messages_history(kind: Any, queue: Queue) -> None:
    put = queue.put("job")

    def work(value: str) -> None:
        current_message().progress(0.25)
        if kind.name == "async":
            deadline = time.monotonic() + 30
            while len(queue.history(put.id)) < 3 and time.monotonic() < deadline:
                current_message().wait(0.01)

    kind.worker(queue, work)()

    notes = [event.detail for event in queue.history(put.id) if event.kind == "extended"]
    assert notes == [{"note": "25%"}]


def test_a_killed_workers_message_comes_back_at_once_and_is_charged_with_a_crash(
    tmp_path: Path,
) -> None:
    path = tmp_path / "queue.sqlite3"
    with SQLiteQueueStore(path) as store:
        queue: Queue = PersistentQueue("jobs", store=store, lease_timeout=600)
        put = queue.put("job")
        victim = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert victim.stdout is not None
        assert victim.stdout.readline() == "began\n"
        leased = queue.inspect(put.id)
        assert leased is not None
        assert leased.leased_by == "victim"
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        victim.stdout.close()

        @persistent_worker(queue)
        def handle(value: str) -> tuple[int, int]:
            message = current_message().message
            return message.crashes, message.failures

        began = time.monotonic()
        assert handle() == (1, 0)  # type: ignore[call-arg]

        assert time.monotonic() - began < 60
        retire_watches()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a keeper")
def test_a_handler_that_holds_the_gil_keeps_its_lease(tmp_path: Path) -> None:
    path = tmp_path / "queue.sqlite3"
    rival = (
        "import sys; from queue import Empty; from localqueue import *\n"
        "queue = PersistentQueue('jobs', store=SQLiteQueueStore(sys.argv[1]))\n"
        "try: queue.get_message(timeout=4.0)\n"
        "except Empty: print('got nothing')"
    )
    with SQLiteQueueStore(path) as store:
        queue: Queue = PersistentQueue("jobs", store=store, lease_timeout=2.0)
        queue.put("job")
        rivals: list[subprocess.Popen[str]] = []

        @persistent_worker(queue)
        def handle(value: str) -> str:
            current_message().wait(1.5)  # with what is left of the lease, a keeper can start
            rivals.append(
                subprocess.Popen(
                    [sys.executable, "-c", rival, str(path)], stdout=subprocess.PIPE, text=True
                )
            )
            ctypes.PyDLL(None).usleep(4_500_000)  # no thread of this process runs meanwhile
            return "done"

        assert handle() == "done"  # type: ignore[call-arg]

        (process,) = rivals
        assert process.communicate(timeout=60)[0] == "got nothing\n"
        assert queue.stats().total == 0
        retire_watches()


def test_one_watch_serves_all_functions_of_a_store_and_ends_when_nobody_needs_it(
    tmp_path: Path,
) -> None:
    with SQLiteQueueStore(tmp_path / "queue.sqlite3") as store:
        queue: Queue = PersistentQueue("jobs", store=store)
        running, seen = threading.Barrier(3), []

        def work(value: int) -> None:
            running.wait(30)
            seen.append(heartbeats())
            running.wait(30)

        def heartbeats() -> int:
            return [thread.name for thread in threading.enumerate()].count("localqueue-heartbeat")

        threads = []
        for number in range(2):
            queue.put(number)
            handle: Any = persistent_worker(queue)(work)
            threads.append(threading.Thread(target=handle))
            threads[-1].start()
        running.wait(30)
        folder = store.run_folder
        assert folder is not None
        signs = [path.name for path in folder.iterdir() if path.name.startswith("alive-")]
        retire_watches()  # somebody uses it: nothing happens
        running.wait(30)
        for thread in threads:
            thread.join()

        assert len(signs) == 1
        assert seen == [1, 1]
        retire_watches()
        assert heartbeats() == 0
        assert not list(folder.glob("alive-*"))


def test_a_watch_that_nobody_uses_ends_by_itself() -> None:
    queue = short_leases()
    queue.put("job")
    handle: Any = persistent_worker(queue)(lambda value: value)

    handle()
    store, when = queue._opened()
    watch = watch_over(store, when, queue.lease_timeout)
    deadline = time.monotonic() + 30
    while watch.is_running and time.monotonic() < deadline:
        time.sleep(0.02)

    assert not watch.is_running
    queue.put("job")
    assert handle() == "job"
    gc.collect()


def test_a_watch_that_has_ended_keeps_no_store_alive() -> None:
    queue = short_leases()
    queue.put("job")
    persistent_worker(queue)(lambda value: value)()  # type: ignore[call-arg]
    store = weakref.ref(queue.store)
    queue.close()
    del queue

    deadline = time.monotonic() + 30
    while store() is not None and time.monotonic() < deadline:
        time.sleep(0.02)
        gc.collect()

    assert store() is None


class SlowLedger(OwnCommit):
    """Does not answer when it is told of extensions, until it is let go."""

    def __init__(self) -> None:
        self.told, self.go_on = threading.Event(), threading.Event()

    def extended(self, message: Message, seconds: float) -> None:
        self.told.set()
        assert self.go_on.wait(30)


@pytest.mark.filterwarnings("ignore::localqueue.CompatibilityWarning")
def test_a_ledger_that_is_slow_to_be_told_costs_nobody_a_lease(kind: Any) -> None:
    commit = SlowLedger()
    queue = committing(commit, lease_timeout=0.3)
    put = queue.put("job", dedupe_key="a")

    def work(value: str) -> bool:
        assert commit.told.wait(30)
        told = current_message().wait(1.0)  # more than three leases
        return told or queue.qsize() > 0

    assert kind.worker(queue, work)() is False

    commit.go_on.set()
    assert queue.inspect(put.id) is None
    assert [event.kind for event in queue.history(put.id)].count("leased") == 1


@pytest.mark.filterwarnings("ignore::localqueue.CompatibilityWarning")
def test_what_a_ledger_raises_when_it_is_told_of_progress_is_logged_and_not_the_handlers(
    kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Away(OwnCommit):
        def extended(self, message: Message, seconds: float) -> None:
            raise ConnectionError("the ledger is away")

    queue = committing(Away())
    queue.put("job", dedupe_key="a")

    def work(value: str) -> str:
        current_message().progress("half")
        deadline = time.monotonic() + 30
        while "the ledger is away" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.01)
        return value

    assert kind.worker(queue, work, max_tries=1)() == "job"

    assert "not told that the lease goes on" in caplog.text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_a_watch_of_its_own(tmp_path: Path) -> None:
    script = """
import os, sys
from localqueue import PersistentQueue, SQLiteQueueStore
from localqueue.worker import persistent_worker

queue = PersistentQueue("jobs", store=SQLiteQueueStore(sys.argv[1]))
queue.put_many([1, 2])

@persistent_worker(queue)
def handle(value):
    return value

assert handle() == 1
child = os.fork()
if child == 0:
    os._exit(0 if handle() == 2 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "queue.sqlite3")],
        timeout=60,
        check=False,
    )

    assert ended.returncode == 0
