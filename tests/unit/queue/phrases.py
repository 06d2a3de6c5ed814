"""Short ways to say what a test of the queue does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from localqueue.message import QueueMessage
from localqueue.queue import PersistentQueue
from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.protocol import JournalEvent, Waiter
from localqueue.stores.sqlite.store import SQLiteQueueStore

PATIENCE = 20.0
"""How long a test waits for what must happen; only a failing one waits that long."""

R = TypeVar("R")
Queue = PersistentQueue[Any]
NewQueue = Callable[..., Queue]


class Background(Generic[R]):
    """A call in a thread of its own, and what became of it."""

    def __init__(self, call: Callable[[], R]) -> None:
        self._call = call
        self._answer: list[R] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer.append(self._call())
        except BaseException as error:
            self._error = error

    def is_running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> R:
        """What the call returned, when it is over; its error is raised here."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), f"still blocked after {PATIENCE} s"
        if self._error is not None:
            raise self._error
        return self._answer[0]


class WatchedMemoryStore(MemoryQueueStore):
    """A memory store that says when somebody begins to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_on = threading.Event()

    def watch(self, queues: Iterable[str], what: Literal["ready", "room"]) -> Waiter:
        waiter = super().watch(queues, what)
        self.waited_on.set()
        return waiter


class WatchedSQLiteStore(SQLiteQueueStore):
    """A file that says when somebody begins to wait."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, durability="relaxed")
        self.waited_on = threading.Event()

    def watch(self, queues: Iterable[str], what: Literal["ready", "room"]) -> Waiter:
        waiter = super().watch(queues, what)
        self.waited_on.set()
        return waiter


WatchedStore = WatchedMemoryStore | WatchedSQLiteStore


def blocked(store: WatchedStore, call: Callable[[], R]) -> Background[R]:
    """The call in the background, after it found that it has to wait."""
    store.waited_on.clear()
    waiting = Background(call)
    assert store.waited_on.wait(PATIENCE), "the call did not wait for anything"
    assert waiting.is_running()
    return waiting


def values(messages: Iterable[QueueMessage[Any]]) -> list[Any]:
    return [message.value for message in messages]


def drain(queue: Queue) -> list[Any]:
    """The values that are there now, each acknowledged before the next is taken."""
    seen = []
    while not queue.empty():
        message = queue.get_message(block=False)
        seen.append(message.value)
        assert queue.ack(message)
    return seen


def kinds(events: Iterable[JournalEvent]) -> list[str]:
    return [event.kind for event in events]
