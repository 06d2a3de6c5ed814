"""How verbs get into a file or into memory. What a verb does there is not known here."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from localqueue.clock import Now
from localqueue.errors import StoreBusy, StoreClosed, StoreError
from localqueue.stores.sqlite import connection, fork, process_end
from localqueue.stores.sqlite.commit import Group, raise_if_damaged, roll_back, run_calls, run_read
from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.durability import SYNCS_ITSELF, outcome_unknown
from localqueue.stores.sqlite.group_commit import (
    PLAIN,
    Call,
    GroupCommit,
    Listener,
    Manner,
    Verb,
)
from localqueue.stores.sqlite.identity import Identity
from localqueue.stores.sqlite.opened import OpenFile
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.turnstile import SYNC_FAILED
from localqueue.stores.sqlite.view import FileState, View
from localqueue.stores.sqlite.wakeup import Wakeups

if TYPE_CHECKING:
    from localqueue.stores.sqlite.answer import Answer

R = TypeVar("R")
LONGEST_AT_EXIT = 1.0


class Runner(Protocol):
    """Runs verbs."""

    def write(self, verb: Verb[R], now: Now, manner: Manner = PLAIN) -> R:
        """Run the verb in a transaction: durable when this returns, undone if it raises."""

    def read(self, verb: Callable[[View], R], *, lasting: bool = False) -> R:
        """Run the verb on a consistent state, without waiting for writers.

        ``lasting`` is for what is remembered elsewhere: a power cut does not undo what it sees.
        """

    def close(self) -> None: ...


class FileRunner:
    """One file, used by the threads of a process together, and with other processes in turn."""

    def __init__(
        self,
        companions: Companions,
        *,
        durability: str,
        timeout: float,
        wakeups: Wakeups,
        network: bool = False,
    ) -> None:
        self._companions = companions
        self._path = companions.database
        self._name = str(self._path)
        self._durability = durability
        self._syncs = SYNCS_ITSELF and durability == "full"
        self._timeout = timeout
        self._wakeups = wakeups
        self._network = network
        self._closed = False
        self._open: OpenFile | None = None
        self._inode: tuple[int, int] | None = None
        self._abandoned_files: list[OpenFile] = []
        self._doubted = False
        """Whether SQLite said that the file cannot be read: that may have been a passing fault of
        the disk, so the next call opens it anew."""
        self._figures = {"calls": 0, "commits": 0, "largest_group": 0, "syncs": 0, "sync_time": 0.0}
        self._make_locks()
        fork.watch(self)
        process_end.watch(self)

    def _make_locks(self) -> None:
        self._group = GroupCommit(self._work, self._take_back)
        self._mutex = threading.Lock()
        self._changed = threading.Condition(self._mutex)
        self._forking = False

    def write(self, verb: Verb[R], now: Now, manner: Manner = PLAIN) -> R:
        return self._group.run(Call(verb, now, time.monotonic() + self._timeout, manner))

    def submit(self, verb: Verb[R], now: Now, manner: Manner = PLAIN) -> Answer[R]:
        """The same without waiting: a helper thread does the work."""
        from localqueue.stores.sqlite.answer import Answer

        answer: Answer[R] = Answer(self._take_back)
        answer.call = self.submit_for(answer, verb, now, manner)
        return answer

    def submit_for(
        self, listener: Listener, verb: Verb[R], now: Now, manner: Manner = PLAIN
    ) -> Call[R]:
        """The same, cheaper than with a future: the listener is told, in the helper thread."""
        call: Call[R] = Call(verb, now, time.monotonic() + self._timeout, manner, listener)
        self._group.submit(call)
        return call

    def abandon(self, call: Call[Any]) -> None:
        """Nobody will see the answer of a call that was submitted; it may be there already."""
        if not call.gone:
            call.gone = True
            if call.finished:
                self._take_back(call)

    def exclusively(self, work: Callable[[sqlite3.Connection], R]) -> R:
        """Run it on the writing connection, outside a transaction, while nobody else writes."""
        deadline = time.monotonic() + self._timeout
        self._group.hold(deadline)
        try:
            with self._changed:
                file = self._opened()
            with self._translated():
                file.lock.acquire(deadline)
                try:
                    file.mind_marks()
                    return work(file.writer)
                finally:
                    file.state.upto = None
                    file.lock.release()
        finally:
            self._group.let_go()

    def read(self, verb: Callable[[View], R], *, lasting: bool = False) -> R:
        with self._mutex:
            file = self._opened()
            db = file.readers.pop() if file.readers else None
            file.reading += 1
        try:
            with self._translated():
                if db is None:
                    db = connection.connect_to_read(self._path, timeout=self._timeout)
                if lasting and self._syncs:
                    self._sync(file)
                return run_read(db, file.state, verb, self._name)
        finally:
            self._give_back(file, db)

    def figures(self) -> dict[str, float]:
        """What this process has done here so far."""
        lock = None if self._open is None else self._open.lock
        return {
            **self._figures,
            "lock_waits": 0 if lock is None else lock.waits,
            "longest_lock_wait": 0.0 if lock is None else lock.longest_wait,
        }

    def is_open(self) -> bool:
        return self._open is not None

    def close_at_exit(self) -> None:
        """Nobody closed it: leave no files behind, unless somebody is still at work."""
        with contextlib.suppress(StoreError):
            self._group.hold(time.monotonic() + LONGEST_AT_EXIT)
            self._closed = True
            self._close_file()

    def close(self) -> None:
        try:
            self._group.hold(time.monotonic() + self._timeout)
        except StoreBusy:
            self._closed = True
            raise
        try:
            with self._changed:
                self._closed = True
                self._close_file()
        finally:
            self._group.let_go()
            self._group.stop()

    # --- what the leader of a group does --------------------------------------------------------
    def _work(self, own: Call[Any], take: Callable[[], list[Call[Any]]]) -> None:
        with self._mutex:
            if self._doubted:
                self._doubted = False
                self._close_file()
            file = self._opened()
        group = Group(file, self._translate)
        try:
            file.lock.acquire(own.deadline)
            try:
                file.mind_marks()
                group.commit(take)
            finally:
                file.lock.release()
            self._answer(file, group, own)
        except Exception as error:
            translated = self._translate(error)
            if translated is error:
                raise
            raise translated from error
        except BaseException:
            # Only the leader is interrupted: the others get what they came for.
            if group.committed:
                own.gone = True
                self._answer(file, group, own)
                self._take_back(own)
            else:
                self._group.give_back(group.calls[1:])
            raise

    def _answer(self, file: OpenFile, group: Group, own: Call[Any]) -> None:
        """Make it durable, then tell everybody."""
        self._wakeups.tell(group.ready, group.room)
        calls = group.calls
        figures = self._figures
        figures["calls"] += len(calls)
        figures["commits"] += 1
        figures["largest_group"] = max(figures["largest_group"], len(calls))
        try:
            # Once more: it may have gone while they waited for the lock, with what they put.
            connection.check_same_file(self._name, file.inode)
            if self._syncs and _has_to_last(group):
                self._sync(file)
        except StoreError as error:
            for call in calls:
                call.error = call.error or error
        for call in calls:
            if call is not own:
                call.finish()
                if call.gone:
                    self._take_back(call)

    def _sync(self, file: OpenFile) -> None:
        began = time.perf_counter()
        try:
            file.wal.sync()
        except OSError as error:
            file.lock.mark(SYNC_FAILED, True)
            raise outcome_unknown(self._name, error) from error
        self._figures["syncs"] += 1
        self._figures["sync_time"] += time.perf_counter() - began

    def _take_back(self, call: Call[Any]) -> None:
        """Nobody will see the answer."""
        from localqueue.stores.sqlite.answer import Nobody

        undo = call.manner.undo
        if undo is None or call.error is not None or self._closed:
            return
        verb = undo(call.answer)
        if verb is not None:
            self.submit_for(Nobody(), verb, call.now)

    # --- around a fork --------------------------------------------------------------------------
    def before_fork(self) -> None:
        """Close the file, so that no connection crosses: both sides open it again when needed.

        SQLite takes the locks of an inherited connection for its own, so a child that opened the
        file beside one would hold none, and the parent's close would take its puts away.
        """
        try:
            self._group.hold(time.monotonic() + self._timeout)
        except StoreBusy:
            return
        self._changed.acquire()
        self._forking = True
        file = self._open
        if file is None or self._changed.wait_for(lambda: not file.reading, self._timeout):
            # Waiters of this process sleep on at their FIFOs.
            self._close_file(tidy=False)
        # Last: a writer that had to be waited for tells its waiters.
        self._wakeups.before_fork()

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            if self._open is not None:
                self._open.leave_to_parent()
            # Threads that did not come along may have held them.
            self._make_locks()
            self._wakeups.after_fork(in_child=True)
            return
        self._wakeups.after_fork(in_child=False)
        if self._forking:
            self._forking = False
            self._changed.release()
            self._group.let_go()

    # --- the file -------------------------------------------------------------------------------
    def _opened(self) -> OpenFile:
        """The open file; with ``_changed``. Opened at first use, and again after a fork."""
        if self._closed:
            raise StoreClosed(f"{self._path}: the store was closed")
        if self._inode is not None:
            connection.check_same_file(self._name, self._inode)
        if self._open is not None and self._open.pid != os.getpid():
            # A connection that crossed a fork all the same: closing it here would touch the
            # parent's file, so it is only kept from being collected.
            self._close_file()
        if self._open is None:
            with self._translated():
                self._open = OpenFile(
                    self._companions,
                    durability=self._durability,
                    timeout=self._timeout,
                    network=self._network,
                )
            self._inode = self._open.inode
        return self._open

    def _close_file(self, *, tidy: bool = True) -> None:
        file, self._open = self._open, None
        if file is not None:
            if file.pid == os.getpid():
                file.close(tidy=tidy)
            else:
                self._abandoned_files.append(file)

    def _give_back(self, file: OpenFile, db: sqlite3.Connection | None) -> None:
        with self._changed:
            file.reading -= 1
            self._changed.notify_all()
            if db is None:
                return
            if file is self._open and len(file.readers) < 8:
                file.readers.append(db)
                return
        db.close()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (*connection.DRIVER_ERRORS, OSError) as error:
            raise self._translate(error) from error

    def _translate(self, error: Exception) -> Exception:
        """The driver's error as one of ours; others as they are."""
        if isinstance(error, StoreError) or not isinstance(
            error, (*connection.DRIVER_ERRORS, OSError)
        ):
            return error
        if self._inode is not None:
            # What SQLite says of a file that goes away in the middle is anybody's guess.
            try:
                connection.check_same_file(self._name, self._inode)
            except StoreError as moved:
                return moved
        self._doubted = self._doubted or connection.is_doubtful(error)
        translated = connection.translate(error, self._name)
        translated.__cause__ = error
        return translated


def _has_to_last(group: Group) -> bool:
    """Whether somebody's answer has to survive a power cut."""
    for call in group.calls:
        # What wrote nothing may still speak of a put that another process has not synced yet.
        if call.manner.grows or (group.wrote and not call.manner.fleeting):
            return True
    return False


class MemoryRunner:
    """One database in this process's memory, for one thread at a time."""

    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self._lock = threading.RLock()
        self._pid = os.getpid()
        connection.check_sqlite()
        self._db: sqlite3.Connection | None = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=256
        )
        connection.configure(self._db)
        connection.bring_up_to_date(self._db, "memory")
        self._state = FileState(Identity(self._db.execute(SQL.identities).fetchall()))

    def write(self, verb: Verb[R], now: Now, manner: Manner = PLAIN) -> R:
        call: Call[R] = Call(verb, now, 0.0)
        with self._opened() as db:
            try:
                db.execute("BEGIN IMMEDIATE")
                (tx,) = run_calls(db, self._state, [call])
                db.execute("COMMIT")
                tx.committed()
            except BaseException as error:
                roll_back(db)
                self._state.upto = None
                raise_if_damaged(db, error, "memory")
                raise
        self._wakeups.tell(tx.ready, tx.room)
        return call.answer

    def read(self, verb: Callable[[View], R], *, lasting: bool = False) -> R:
        with self._opened() as db:
            return run_read(db, self._state, verb, "memory")

    def close(self) -> None:
        with self._lock:
            if self._db is not None and self._pid == os.getpid():
                self._db.close()
            self._db = None

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        if self._pid != os.getpid():
            raise StoreError("a memory store does not cross a fork; make one in the child")
        with self._lock, connection.translated("memory"):
            if self._db is None:
                raise StoreClosed("the memory store was closed")
            yield self._db
