"""What a store does, one operation after the other, in a worker that can be killed inside of it.

Each operation has a file to begin with, what happens before the moment of interest, and the act.
The worker runs on apsw, so that every write and sync is a moment at which it may be killed.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from localqueue.errors import LocalQueueError
from localqueue.policies.journal import Journal
from localqueue.queue import PersistentQueue
from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.connection import CHECKPOINT_AT
from localqueue.stores.sqlite.daybook import book
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.stores.sqlite.verbs import boot
from localqueue.stores.sqlite.verbs.fold import EVERY
from localqueue.testing import ManualClock
from tests.faults.oracle import Oracle
from tests.migration.test_migrations import ROWS_OF_VERSION_1, ROWS_OF_VERSION_2, make_file

FRAME = 4096 + 24
KEPT_ROWS = 100
Queue = PersistentQueue[Any]


def open_queue(path: Path, **options: Any) -> Queue:
    store = SQLiteQueueStore(path, timeout=30.0)
    return PersistentQueue("jobs", store=store, lease_timeout=3600, **options)


# --- files to begin with --------------------------------------------------------------------------
def nothing(path: Path) -> None:
    """No file at all."""


def some_messages(path: Path) -> None:
    queue = open_queue(path)
    queue.put_many([{"number": number} for number in range(12)])
    queue.store.close()


def about_to_fold(path: Path, **options: Any) -> None:
    """One event more and the journal is folded into the counters."""
    queue = open_queue(path, **options)
    queue.put("first")
    queue.put_many(range(EVERY // 4))
    assert all(queue.ack_many(queue.get_messages(EVERY // 4, block=False)))
    with closing(sqlite3.connect(path)) as db:
        [(events,)] = db.execute("SELECT max(seq) FROM event").fetchall()
    queue.put_many(range(EVERY - 1 - events))
    queue.store.close()


def about_to_trim(path: Path) -> None:
    """The same, and most of the journal may go then."""
    about_to_fold(path, journal_policy=Journal(max_rows=KEPT_ROWS))


def about_to_checkpoint(path: Path) -> None:
    """A -wal that the next commit makes long enough; by a process that does not close the file."""
    pid = os.fork()
    if not pid:
        _fill_wal(path)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def _fill_wal(path: Path) -> None:
    queue = open_queue(path)
    queue.put("stays")
    wal = path.with_name(f"{path.name}-wal")
    while wal.stat().st_size < (CHECKPOINT_AT - 4) * FRAME:
        left = CHECKPOINT_AT - wal.stat().st_size // FRAME
        if left > 40:
            queue.ack(queue.put("goes"))
        else:
            queue.record_worker_heartbeat("w1")


def of_version_1(path: Path) -> None:
    """A file as the first version left it, with messages in every state."""
    make_file(path, 1, ROWS_OF_VERSION_1)


def of_version_2(path: Path) -> None:
    """A file as the second version left it, with lives that are over."""
    make_file(path, 2, ROWS_OF_VERSION_2)


# --- acts -----------------------------------------------------------------------------------------
class Operation(NamedTuple):
    """``before`` gives what ``act`` is called with. The moment of interest is the act alone."""

    begin_with: Callable[[Path], None]
    before: Callable[[Path], Any]
    act: Callable[[Any], object]


def _opened(path: Path) -> Queue:
    queue = open_queue(path)
    queue.record_worker_heartbeat("w1")
    return queue


def _leased(n: int) -> Callable[[Path], Any]:
    def before(path: Path) -> Any:
        queue = _opened(path)
        return queue, queue.get_messages(n, block=False)

    return before


def _about_to_note(path: Path, durability: Any = "full") -> Queue:
    """From now on whatever can be noted is; there is no daybook yet."""
    book.WARM_UP = 0
    store = SQLiteQueueStore(path, durability=durability, timeout=30.0)
    queue: Queue = PersistentQueue("jobs", store=store, lease_timeout=3600)
    queue.put("in the tables")
    return queue


def _noting(path: Path, durability: Any = "full") -> Queue:
    queue = _about_to_note(path, durability)
    queue.put("noted")
    assert all(queue.ack_many(queue.get_messages(3, block=False)))
    assert Companions(path).daybook.exists()
    return queue


def _noting_relaxed(path: Path) -> Queue:
    return _noting(path, "relaxed")


def _posted(path: Path) -> Queue:
    """What was noted is in the tables, and still in the daybook, too."""
    queue = _noting(path)
    queue.put("posts", delay=3600)
    return queue


def _noted_leases(n: int) -> Callable[[Path], Any]:
    def before(path: Path) -> Any:
        queue = _noting(path)
        return queue, queue.get_messages(n, block=False)

    return before


def left_by_the_killed(path: Path) -> None:
    """The file, its -wal and its daybook, with entries that nobody has posted."""
    some_messages(path)
    pid = os.fork()
    if not pid:
        _noting(path)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert Companions(path).daybook.exists()


def of_a_later_time(path: Path) -> None:
    """A file that has lost its last transactions, as to a power cut, but not what was noted after
    them.
    """
    some_messages(path)
    backup = path.read_bytes()
    left_by_the_killed(path)
    Companions(path).wal.unlink()
    path.write_bytes(backup)


def _boot(store: SQLiteQueueStore) -> None:
    """Leaves out many events in one transaction: it comes past those of a lost daybook."""
    # As many each time: what is left is compared.
    boot.APART = 1
    store.open_clock(ManualClock(boot="the next"))


def of_another_database(path: Path) -> None:
    """A daybook that somebody has left here with a file that is gone."""
    other = path.with_name("other.sqlite3")
    left_by_the_killed(other)
    some_messages(path)
    Companions(other).daybook.rename(Companions(path).daybook)


OPERATIONS: dict[str, Operation] = {
    "new file": Operation(nothing, SQLiteQueueStore, lambda store: store.queues()),
    "put": Operation(some_messages, _opened, lambda queue: queue.put("new")),
    "put_many": Operation(some_messages, _opened, lambda queue: queue.put_many(range(20))),
    "put large": Operation(some_messages, _opened, lambda queue: queue.put("x" * 20_000)),
    "get": Operation(some_messages, _opened, lambda queue: queue.get_message(block=False)),
    "get_messages": Operation(some_messages, _opened, lambda queue: queue.get_messages(10)),
    "ack": Operation(some_messages, _leased(1), lambda it: it[0].ack(it[1][0])),
    "ack_many": Operation(some_messages, _leased(10), lambda it: it[0].ack_many(it[1])),
    "release": Operation(some_messages, _leased(1), lambda it: it[0].release(it[1][0], error="x")),
    "dead_letter": Operation(
        some_messages, _leased(1), lambda it: it[0].dead_letter(it[1][0], "boom")
    ),
    "fold": Operation(about_to_fold, _opened, lambda queue: queue.put("folds")),
    "trim": Operation(about_to_trim, _opened, lambda queue: queue.put("trims")),
    "checkpoint": Operation(about_to_checkpoint, _opened, lambda queue: queue.put("over")),
    "close": Operation(about_to_checkpoint, _opened, lambda queue: queue.store.close()),
    "migration": Operation(of_version_1, SQLiteQueueStore, lambda store: store.queues()),
    "last migration": Operation(of_version_2, SQLiteQueueStore, lambda store: store.queues()),
    "new book": Operation(some_messages, _about_to_note, lambda queue: queue.put("first")),
    "noted put": Operation(some_messages, _noting, lambda queue: queue.put("new")),
    "noted put_many": Operation(some_messages, _noting, lambda queue: queue.put_many(range(20))),
    "noted get": Operation(some_messages, _noting, lambda queue: queue.get_message(block=False)),
    "noted ack": Operation(some_messages, _noted_leases(1), lambda it: it[0].ack(it[1][0])),
    "noted ack_many": Operation(some_messages, _noted_leases(5), lambda it: it[0].ack_many(it[1])),
    "put through memory": Operation(some_messages, _noting_relaxed, lambda queue: queue.put("new")),
    "posting": Operation(some_messages, _noting, lambda queue: queue.put("posts", delay=3600)),
    "heartbeat that posts": Operation(
        some_messages, _noting, lambda queue: queue.record_worker_heartbeat("w1")
    ),
    "next generation": Operation(some_messages, _posted, lambda queue: queue.put("over it")),
    "close of the book": Operation(some_messages, _noting, lambda queue: queue.store.close()),
    "posting for the killed": Operation(
        left_by_the_killed, open_queue, lambda queue: queue.put("next")
    ),
    "a book of a later time": Operation(of_a_later_time, SQLiteQueueStore, _boot),
    "a stranger's book": Operation(
        of_another_database, open_queue, lambda queue: queue.put("next")
    ),
}
UNCHANGED = {"close", "close of the book"}
"""Operations that leave the file with what was in it."""


# --- the worker -----------------------------------------------------------------------------------
def run(path: str, oracle: str, name: str, moment: int | None, defect: str | None) -> None:
    """Do the operation and die: at the moment of this number, or when it is done.

    Moment 0 is before the act. None counts the moments and tells the oracle.
    """
    # Not at the top: the process that pytest runs in describes operations, and has sqlite3 only.
    from tests.faults.killer import Killer

    killer = Killer(Path(path))
    killer.install(defect)
    operation, told = OPERATIONS[name], Oracle(oracle)
    given = operation.before(Path(path))
    if moment == 0:
        killer.kill()
    killer.arm(moment)
    operation.act(given)
    told.answered("act", killer.passed)
    killer.kill()


def run_on_full_disk(path: str, oracle: str, name: str, write: int | None) -> None:
    """Do the operation on a disk that is full from the write of this number on; then die."""
    from tests.faults.killer import FullDisk

    disk = FullDisk(Path(path))
    disk.install(None)
    operation, told = OPERATIONS[name], Oracle(oracle)
    given = operation.before(Path(path))
    disk.arm(write)
    try:
        operation.act(given)
    except LocalQueueError as error:
        told.answered("refused", type(error).__name__)
    else:
        told.answered("done", disk.passed)
    disk.kill()


def make(path: str, name: str) -> None:
    """The file that the operation begins with, made by sqlite3."""
    OPERATIONS[name].begin_with(Path(path))
