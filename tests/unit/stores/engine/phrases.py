"""Words for tests of the engine: a store whose calls can be made to meet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from localqueue.stores.protocol import LeaseRequest, Put
from localqueue.stores.sqlite.group_commit import PLAIN, Call, Manner, Verb
from localqueue.stores.sqlite.runner import FileRunner
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.stores.sqlite.view import Transaction

R = TypeVar("R")
QUEUE = "jobs"
SOON = 20.0
"""Longer than anything takes that is not stuck."""


def make_store(tmp_path: Path, **options: Any) -> SQLiteQueueStore:
    store = SQLiteQueueStore(tmp_path / "queue.sqlite3", **options)
    store.configure(QUEUE, {}, now=1.0)
    return store


def runner_of(store: SQLiteQueueStore) -> FileRunner:
    runner = store._runner
    assert isinstance(runner, FileRunner)
    return runner


def put(store: SQLiteQueueStore, body: bytes = b"1") -> Any:
    return store.enqueue_many([Put(QUEUE, body)], now=1.0)[0].message


def lease_all(store: SQLiteQueueStore) -> list[bytes]:
    return [found.body for found in store.lease(LeaseRequest((QUEUE,), 1000), now=1.0)]


class Answer(Future[R]):
    """A future that takes its call back when it is cancelled.

    A call that nobody works on yet is withdrawn; one that is worked on runs to its end, and what it
    leased is released. Cancelling is allowed even when the answer is there: then it was not seen.
    """

    def __init__(self, runner: FileRunner, verb: Verb[R], manner: Manner) -> None:
        super().__init__()
        self._runner = runner
        self.call = runner.submit_for(self, verb, 1.0, manner)

    def taken(self) -> bool:
        return self.set_running_or_notify_cancel()

    def finished(self, call: Call[Any]) -> None:
        if call.error is not None:
            self.set_exception(call.error)
        else:
            self.set_result(call.answer)

    def tell(self) -> None:
        """Told already: a thread that waits for a future is woken by its result."""

    def cancel(self) -> bool:
        if super().cancel():
            return True
        self._runner.abandon(self.call)
        return False


def submit(store: SQLiteQueueStore, verb: Verb[R], manner: Manner = PLAIN) -> Answer[R]:
    """Call it without a thread that waits."""
    return Answer(runner_of(store), verb, manner)


class Meeting:
    """Calls that line up while nobody may work, and then run as one group."""

    def __init__(self, store: SQLiteQueueStore) -> None:
        self.answers: dict[str, Any] = {}
        self.errors: dict[str, BaseException] = {}
        self._group = runner_of(store)._group
        self._threads: list[threading.Thread] = []

    def add(self, name: str, call: Callable[[], Any]) -> None:
        """The calls get their places in the order in which they are added."""
        places = len(self._group._waiting)

        def run() -> None:
            try:
                self.answers[name] = call()
            except BaseException as error:
                self.errors[name] = error

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)
        until(lambda: len(self._group._waiting) > places)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(SOON)
            assert not thread.is_alive(), f"{thread.name} is stuck"


@contextmanager
def meeting(store: SQLiteQueueStore) -> Iterator[Meeting]:
    """The calls that are added inside run when the block is left."""
    group = runner_of(store)._group
    held = group.hold(time.monotonic() + SOON)
    met = Meeting(store)
    try:
        yield met
    finally:
        group.let_go(held)
    met.join()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline, "it never happens"
        time.sleep(0.001)


def spoil(tx: Transaction) -> None:
    """A verb that changes something and then fails."""
    tx.db.execute("UPDATE queue SET version = version + 100")
    raise ZeroDivisionError("after a change")


def refuse(tx: Transaction) -> None:
    """A verb that fails before it changes anything."""
    raise ZeroDivisionError("before any change")
