"""Words for tests of the daybook: plain calls, and what they left in the book and in the tables."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from localqueue.message import Receipt
from localqueue.stores.protocol import LeaseRequest, Put, StoredMessage
from localqueue.stores.sqlite.daybook.book import Daybook
from localqueue.stores.sqlite.daybook.entries import Entry
from localqueue.stores.sqlite.store import SQLiteQueueStore
from tests.unit.stores.engine.phrases import runner_of

NOW = 1_700_000_000.0
QUEUE = "jobs"


def open_store(path: Path, durability: str = "relaxed", **settings: Any) -> SQLiteQueueStore:
    """One whose first plain call can be noted: its queue is known."""
    store = SQLiteQueueStore(path, durability=durability)  # type: ignore[arg-type]
    store.configure(QUEUE, settings, now=NOW)
    return store


def put(store: SQLiteQueueStore, *bodies: bytes, now: float = NOW, **options: Any) -> list[str]:
    puts = [Put(QUEUE, body, **options) for body in bodies or (b"1",)]
    return [answer.message.id for answer in store.enqueue_many(puts, now=now)]


def lease(
    store: SQLiteQueueStore, n: int = 1, now: float = NOW, **options: Any
) -> Sequence[StoredMessage]:
    return store.lease(LeaseRequest((QUEUE,), n, **options), now=now)


def ack(
    store: SQLiteQueueStore, messages: Sequence[StoredMessage], now: float = NOW
) -> Sequence[bool]:
    receipts = [Receipt(message.queue, message.id, message.token) for message in messages]
    return store.ack_many(receipts, now=now)


def bodies(messages: Sequence[StoredMessage]) -> list[bytes]:
    return [message.body for message in messages]


def waiting(store: SQLiteQueueStore, now: float = NOW) -> list[bytes]:
    """What a look at the queue shows: whoever reads has the book posted."""
    return bodies(store.peek(QUEUE, 10_000, now=now))


def is_noted(noted: list[Entry], call: Callable[[], Any]) -> bool:
    """Whether the call is noted; ``noted`` is what was counted so far."""
    before = len(noted)
    call()
    return len(noted) > before


def book_of(store: SQLiteQueueStore) -> Daybook:
    file = runner_of(store)._holding.file
    assert file is not None
    return file.book


def daybook(path: Path) -> Path:
    return path.with_name(f"{path.name}-daybook")


def query(path: Path, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """From the tables alone, as a foreign program reads them."""
    with closing(sqlite3.connect(path)) as db:
        return db.execute(statement, values).fetchall()


def as_left_by_a_kill(path: Path, folder: Path) -> Path:
    """A copy of the files as they are now: nobody has closed them."""
    folder.mkdir()
    for name in (path.name, f"{path.name}-wal", daybook(path).name):
        if path.with_name(name).exists():
            shutil.copy(path.with_name(name), folder / name)
    return folder / path.name
