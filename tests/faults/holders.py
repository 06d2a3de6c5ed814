"""Workers that are stopped with the lock of a file, and callers that want it meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localqueue.errors import LocalQueueError
from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite import turnstile
from localqueue.stores.sqlite.daybook import book
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.faults.nursery import Child, say, say_and_wait

TIMEOUT = 0.3
Queue = PersistentQueue[Any]


def open_queue(path: str, timeout: float = TIMEOUT) -> Queue:
    return PersistentQueue("jobs", store=SQLiteQueueStore(path, timeout=timeout))


def stop_self() -> float:
    os.kill(os.getpid(), signal.SIGSTOP)
    return 1_700_000_000.0


@contextmanager
def stopped(work: str, path: Path) -> Iterator[Child]:
    """A process that has stopped itself; afterwards it goes on, and must end well."""
    with Child(f"holders:{work}", str(path)) as holder:
        assert holder.hear() == "open"
        holder.tell()
        holder.wait_until_stopped()
        yield holder
        holder.go_on()
        holder.wait()


# --- stopped with the lock ------------------------------------------------------------------------
def stop_in_transaction(path: str) -> None:
    """Be stopped in the middle of a transaction; when it goes on, finish it."""
    queue = open_queue(path, timeout=30.0)
    queue.qsize()
    say_and_wait("open")
    queue.store.record_worker_heartbeat("jobs", "stopped", now=stop_self)
    # Not closed: that takes the lock once more.
    os._exit(0)


def stop_with_a_book(path: str) -> None:
    """The same, with entries in the daybook that the transaction is about to post."""
    queue = _noting(path)
    say_and_wait("open")
    queue.put("noted")
    queue.store.record_worker_heartbeat("jobs", "stopped", now=stop_self)
    os._exit(0)


def stop_in_sync_of_the_book(path: str) -> None:
    """Be stopped after a put was noted, while the disk is waited for."""
    queue = _noting(path)
    say_and_wait("open")
    # Whoever has called meanwhile has the book: it is ours again with this.
    queue.put("posts", delay=3600)
    sync = os.fdatasync
    os.fdatasync = lambda fd: (stop_self() if _is_book(fd) else None, sync(fd))[1]
    queue.put("synced late")
    os.fdatasync = sync
    queue.store.close()


def _noting(path: str) -> Queue:
    """One whose plain puts are noted."""
    book.WARM_UP = 0
    queue = open_queue(path, timeout=30.0)
    queue.put("in the tables")
    queue.put("noted before")
    return queue


def _is_book(descriptor: Any) -> bool:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink()).endswith("-daybook")


def stop_in_sync(path: str) -> None:
    """Be stopped after the commit, while the disk is waited for."""
    queue = open_queue(path, timeout=30.0)
    queue.qsize()
    say_and_wait("open")
    sync = os.fdatasync
    os.fdatasync = lambda fd: (stop_self(), sync(fd))[1]
    queue.put("synced late")
    os.fdatasync = sync
    queue.store.close()


def stop_in_line(path: str) -> None:
    """Be stopped while waiting for the lock: nobody else is next then."""
    queue = open_queue(path, timeout=30.0)
    queue.qsize()
    say_and_wait("open")
    threading.Timer(0.3, stop_self).start()
    queue.put("waited")
    queue.store.close()


# --- callers --------------------------------------------------------------------------------------
def call(path: str, threads: int, verbs: int, defect: str | None) -> None:
    """Put, take and settle in several threads; say what came of it, and how long it took.

    So many of these three, each time that it is told to.
    """
    if defect == "WaitsTooLong":
        wait = turnstile._Queueing.wait
        turnstile._Queueing.wait = lambda self, timeout: wait(self, 7 * TIMEOUT)  # type: ignore[method-assign]
    queue = open_queue(path)
    queue.qsize()
    while True:
        say_and_wait("open")
        answers: list[tuple[str, float]] = []
        running = [
            threading.Thread(target=_call, args=(queue, verbs, answers)) for _ in range(threads)
        ]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        queue.qsize()
        say(answers)


def _call(queue: Queue, verbs: int, answers: list[tuple[str, float]]) -> None:
    calls: list[Callable[[], object]] = [
        lambda: queue.put("from a caller"),
        lambda: queue.get_message(block=False),
        lambda: queue.ack("0" * 32),
    ]
    for run in calls[:verbs]:
        began = time.monotonic()
        outcome = "done"
        try:
            run()
        except LocalQueueError as error:
            outcome = type(error).__name__
        answers.append((outcome, time.monotonic() - began))
