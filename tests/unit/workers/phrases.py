"""Short ways to say what a test of workers does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.workers.worker import Worker
from tests.unit.workers.acts import PATIENCE

Queue = PersistentQueue[Any]


class Stage:
    """A folder with a store, the log of what handlers did, and gates they wait at."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = SQLiteQueueStore(folder / "queue.sqlite3", durability="relaxed")
        self.log = folder / "log"

    def queue(self, name: str = "jobs", **options: Any) -> Queue:
        return PersistentQueue(name, store=self.store, **options)

    def gate(self, name: str = "gate") -> Path:
        return self.folder / name

    def act(self, do: str = "return", name: Any = None, **more: Any) -> dict[str, Any]:
        """The value of a message whose handler does this."""
        until = more.pop("until", None)
        if until is not None:
            more["until"] = str(until)
        return {"do": do, "name": name, "log": str(self.log), **more}

    def told(self) -> list[tuple[Any, str]]:
        """What handlers did, in order."""
        if not self.log.exists():
            return []
        return [tuple(json.loads(line)) for line in self.log.read_text().splitlines()]

    def names(self, what: str = "ended") -> list[Any]:
        return [name for name, did in self.told() if did == what]


def eventually(is_so: Callable[[], Any], what: str = "it did not happen") -> Any:
    """Wait for what other threads and processes do; only a failing test waits long."""
    deadline = time.monotonic() + PATIENCE
    while not (found := is_so()):
        assert time.monotonic() < deadline, what
        time.sleep(0.002)
    return found


@contextmanager
def working(worker: Worker) -> Iterator[Worker]:
    """The worker in the background; stopped at once if the test fails."""
    worker.start()
    try:
        yield worker
    except BaseException:
        worker.stop(now=True)
        raise
    worker.stop()
    assert worker.join(PATIENCE), "the worker did not stop"


def dead_errors(queue: Queue) -> list[Any]:
    return [(m.last_error or {}).get("type") for m in queue.dead_letters()]
