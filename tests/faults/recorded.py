"""Workers whose writes are recorded, so that the power can be cut at any moment afterwards."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any
from zlib import crc32

from localqueue.errors import StoreError
from localqueue.message import QueueMessage
from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite import connection, turnstile
from localqueue.stores.sqlite.daybook import book, entries
from localqueue.stores.sqlite.daybook.book import Daybook
from localqueue.stores.sqlite.daybook.file import DaybookFile
from localqueue.stores.sqlite.durability import Placed
from localqueue.stores.sqlite.store import SQLiteQueueStore

Queue = PersistentQueue[Any]


class Work:
    """Random calls on a queue; every answer is marked."""

    def __init__(self, mark: Any, queue: Queue, seed: int) -> None:
        self._mark = mark
        self.queue = queue
        self._seed = seed
        self._chance = random.Random(seed)

    def step(self, number: int) -> None:
        if number % 12 == 11:
            # Others are alone for a while: who takes turns with every call notes nothing.
            time.sleep(0.01)
        dice = self._chance.random()
        if dice < 0.45:
            self._answered_put([self.queue.put([self._seed, number])])
        elif dice < 0.55:
            values = [[self._seed, number, place, "x" * 1500] for place in range(12)]
            self._answered_put(self.queue.put_many(values))
        elif dice < 0.60:
            self._answered_put([self.queue.put([self._seed, number, "large" * 2000])])
        else:
            self._take_and_settle()

    def _take_and_settle(self) -> None:
        try:
            messages = self.queue.get_messages(self._chance.choice((1, 1, 5)), block=False)
        except Empty:
            return
        self._mark("get", [(message.id, message.token) for message in messages])
        receipts = [message.token for message in messages]
        dice = self._chance.random()
        if dice < 0.7:
            assert all(self.queue.ack_many(messages))
        elif dice < 0.8:
            answers = [self.queue.release(message, error="x") for message in messages]
            assert all(answers)
        elif dice < 0.9:
            answers = [self.queue.dead_letter(message, "x") for message in messages]
            assert all(answers)
        else:
            return
        self._mark("settled", receipts)

    def _answered_put(self, messages: list[QueueMessage[Any]]) -> None:
        self._mark("put", [(message.id, message.value) for message in messages])


def open_queue(path: Path, durability: Any) -> Queue:
    store = SQLiteQueueStore(path, durability=durability, timeout=60.0)
    return PersistentQueue("jobs", store=store, lease_timeout=3600)


def use_the_book_at_once() -> None:
    """Note what can be noted from the second call on."""
    book.WARM_UP = 0


def work(
    path: str,
    log: str,
    seed: int,
    steps: int,
    threads: int,
    durability: str,
    unsynced: str | None,
    defect: str | None,
) -> None:
    """So many steps in each thread; alone, the file is closed and opened again on the way."""
    from tests.faults.recorder import Recorder

    database = Path(path)
    recorder = Recorder(log, database, unsynced=unsynced)
    recorder.install()
    use_the_book_at_once()
    if defect == "OverwritesTooSoon":
        Daybook.needs_lasting_tables = lambda self: False  # type: ignore[method-assign]
    elif defect == "KnowsOnlyItsOwn":
        DaybookFile.has_to_last = lambda self: False  # type: ignore[method-assign]
    queue = open_queue(database, durability)

    def mark(verb: str, what: Any) -> None:
        recorder.mark(verb, what, durability)

    if threads > 1:
        _in_threads(mark, queue, seed, steps, threads)
        return
    todo = Work(mark, queue, seed)
    for number in range(steps):
        if number % 90 == 89:
            todo.queue.store.close()
            todo.queue = open_queue(database, durability)
        todo.step(number)


def _in_threads(mark: Any, queue: Queue, seed: int, steps: int, threads: int) -> None:
    failed: list[BaseException] = []

    def run(who: int) -> None:
        todo = Work(mark, queue, seed * 1000 + who)
        try:
            for number in range(steps):
                todo.step(number)
        except BaseException as error:
            failed.append(error)

    running = [threading.Thread(target=run, args=(who,)) for who in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failed:
        raise failed[0]


def seal_alone(data: bytes, _: int) -> int:
    """A checksum that says nothing of the entry before it."""
    return crc32(data)


def work_evenly(path: str, log: str, rounds: int, length: int, defect: str | None) -> None:
    """Fill the daybook again and again with entries of one size: each lies where one lay before.

    The older ones are on the disk, as the system sees to it after a while; what they were posted to
    is not, since the store is a relaxed one.
    """
    from tests.faults.recorder import Recorder

    database = Path(path)
    recorder = Recorder(log, database)
    recorder.install()
    use_the_book_at_once()
    if defect == "SealsEachAlone":
        entries.crc32 = seal_alone  # type: ignore[assignment, attr-defined]
    for one in range(rounds):
        queue = open_queue(database, "relaxed")
        for generation in ("older", "newer"):
            # Posts what is noted, and is no event.
            queue.record_worker_heartbeat("w1")
            for number in range(24):
                value = f"{one:06}{generation}{number:06}" * length
                message = queue.put(value)
                recorder.mark("put", [(message.id, value)])
            if generation == "older":
                descriptor = os.open(f"{database}-daybook", os.O_RDWR)
                os.fdatasync(descriptor)
                os.close(descriptor)
        queue.store.close()


def work_on_a_failing_disk(
    path: str, log: str, seed: int, steps: int, fails_at: int, of: str, end: str, defect: str | None
) -> None:
    """Go on whatever fails: what is answered after the disk failed has to stay as well."""
    from tests.faults.recorder import FailingDisk

    recorder = FailingDisk(log, Path(path), fails_at=fails_at, of=of, end=end)
    recorder.install()
    use_the_book_at_once()
    if of == "SQLite":
        # It syncs for checkpoints, and what is noted takes few pages of the -wal.
        connection.CHECKPOINT_AT = 300
    if defect == "AnswersAllTheSame":
        Placed.sync = _without_errors(Placed.sync)  # type: ignore[method-assign,assignment]
    elif defect == "DoesNotRepair":
        look = turnstile.Turnstile.marks
        turnstile.Turnstile.marks = lambda self: look(self)[:0]  # type: ignore[method-assign]
    todo = Work(recorder.mark, open_queue(Path(path), "full"), seed)
    for number in range(steps):
        try:
            todo.step(number)
        except StoreError as error:
            recorder.mark("failed", str(error))


def _without_errors(sync: Callable[[Placed], None]) -> Callable[[Placed], None]:
    def try_to_sync(file: Placed) -> None:
        with suppress(OSError):
            sync(file)

    return try_to_sync
