"""One commit for the calls of a group."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

from localqueue.clock import read_now
from localqueue.errors import LocalQueueError, StoreCorrupt, StoreFull, StoreMoved
from localqueue.stores.protocol import QueueIsFull
from localqueue.stores.sqlite import connection
from localqueue.stores.sqlite.connection import DRIVER_ERRORS, is_full
from localqueue.stores.sqlite.daybook.book import Daybook
from localqueue.stores.sqlite.daybook.entries import Entry
from localqueue.stores.sqlite.daybook.planning import Noting, may_be_noted
from localqueue.stores.sqlite.daybook.posting import post
from localqueue.stores.sqlite.group_commit import Call, neighbours
from localqueue.stores.sqlite.opened import OpenFile
from localqueue.stores.sqlite.verbs.fold import EVERY, fold_sometimes
from localqueue.stores.sqlite.view import FileState, Transaction, View

R = TypeVar("R")


class Group:
    """Calls on their way into the file."""

    # Every call comes through here: what most groups never have is not made for them.
    calls: Sequence[Call[Any]] = ()
    settled: Sequence[Call[Any]] = ()
    """Those that are committed, or refused: what they have is final."""
    ready: AbstractSet[int] = frozenset()
    room: AbstractSet[int] = frozenset()
    wrote = False
    """Whether there is something to sync."""
    noted = False
    """Whether it is all in the daybook."""

    def __init__(self, file: OpenFile, translate: Callable[[Exception], Exception]) -> None:
        self._file = file
        self._translate = translate

    def has_to_last(self) -> bool:
        """Whether somebody's answer has to survive a power cut."""
        for call in self.calls:
            # What wrote nothing may still speak of a put that another process has not synced yet.
            if call.manner.grows or (self.wrote and not call.manner.fleeting):
                return True
        return False

    def note(
        self,
        own: Call[Any],
        take: Callable[[], list[Call[Any]]],
        sync: Callable[[], None],
    ) -> bool:
        """In the daybook, if all of them are for that; False when they are for the tables.

        ``sync`` makes the tables last. An interrupt is told as for ``commit``.
        """
        book = self._file.book
        if not book.is_ours or self._file.disk_full or not may_be_noted(own):
            return False
        self.calls = calls = take()
        if len(calls) > 1:
            connection.check_same_file(str(self._file.path), self._file.inode)
        noting = book.plan(calls)
        if noting is None and book.is_full and not book.lasts and self._has_posted():
            noting = book.plan(calls)
        if noting is None:
            return False
        if noting.entries and book.needs_lasting_tables():
            if book.lasts:
                # One sync for both: that of the transaction that these are now.
                return False
            sync()
        try:
            self.wrote = bool(noting.entries)
            if not book.note(noting, starts=book.lasts and self.has_to_last()):
                self.wrote = False
                return False
            self._answer_noted(noting)
        except BaseException:
            if book.is_noted(noting):
                self._answer_noted(noting)
            raise
        return True

    def _has_posted(self) -> bool:
        """Make place in the book; one who syncs does that with the call itself, in one sync."""
        try:
            posted = self._file.post()
        except sqlite3.Error:
            # The calls will meet it again, and tell.
            return False
        self._file.look_at_wal()
        return posted

    def _answer_noted(self, noting: Noting) -> None:
        for call, answer in zip(self.calls, noting.answers, strict=True):
            call.answer = answer
        self.ready, self.room = noting.ready, noting.room
        self.noted = True
        self.settled = self.calls

    def commit(self, take: Callable[[], list[Call[Any]]]) -> None:
        """Together, and when one of them spoils that, each for itself.

        What is raised before the calls are taken is an error of SQLite that is none of theirs;
        afterwards only what interrupts the thread, and ``settled`` tells what became of it then.
        """
        db = self._file.writer
        try:
            # Before: whoever waits for a foreign lock on the file makes nobody wait with it.
            self._file.state.hand.execute("BEGIN IMMEDIATE")
            self._file.make_wal_ready()
            # Who tried to note them has taken them.
            self.calls = calls = self.calls or take()
            if len(calls) > 1:
                # The leader has looked for itself; the others may have begun since.
                connection.check_same_file(str(self._file.path), self._file.inode)
            if self._file.disk_full and any(call.manner.grows for call in calls):
                roll_back(db)
                self._each_alone(None)
            else:
                self._together(calls)
        except StoreMoved as moved:
            if not self.calls:
                raise
            for call in self.calls:
                self._refuse(call, StoreMoved(*moved.args))
        except Exception as error:
            if not self.calls:
                raise
            self._fail(error)
        finally:
            roll_back(db)

    def _fail(self, error: Exception) -> None:
        alone = len(self.calls) == 1
        if is_full(error):
            self._file.give_up_ballast()
        elif alone and not isinstance(error, sqlite3.IntegrityError):
            self._refuse(self.calls[0], self._translate(error))
            return
        # Also one that met a row it did not expect: a foreign program may have written it.
        self._each_alone(error)

    def _refuse(self, call: Call[Any], error: Exception) -> None:
        call.error = error
        self.settled = [*self.settled, call]

    def _each_alone(self, why: Exception | None) -> None:
        for call in self.calls:
            call.error = None
            if call.manner.grows and self._file.disk_full:
                full = StoreFull(
                    f"{self._file.path}: the disk is full; what was stored is intact, and can be"
                    " taken out"
                )
                full.__cause__ = why
                self._refuse(call, full)
                continue
            try:
                # All of them may have waited for a foreign program already, and in vain.
                self._file.wait_no_longer_than(call.deadline)
                self._file.state.hand.execute("BEGIN IMMEDIATE")
                self._together([call])
            except Exception as error:
                self._refuse(call, self._translate(error))

    def _together(self, calls: Sequence[Call[Any]]) -> None:
        """Run and commit what was begun."""
        db, state = self._file.writer, self._file.state
        done: Sequence[Transaction] = ()
        try:
            done = run_calls(db, state, calls, self._file.book.unposted())
            if len(calls) == 1 and calls[0].error is not None:
                # What was posted before it kept it from being raised.
                raise_if_damaged(db, calls[0].error, str(self._file.path))
            state.hand.execute("COMMIT")
            self._remember(done, calls)
        except BaseException as error:
            state.upto = None
            if done and not isinstance(error, Exception) and not db.in_transaction:
                # Interrupted after the fact.
                if calls[0] not in self.settled:
                    self._remember(done, calls)
                raise
            roll_back(db)
            raise_if_damaged(db, error, str(self._file.path))
            raise

    def _remember(self, done: Sequence[Transaction], calls: Sequence[Call[Any]]) -> None:
        for tx in done:
            if tx.has_changed():
                self.wrote = True
            tx.committed()
            if tx.ready:
                self.ready |= tx.ready
            if tx.room:
                self.room |= tx.room
        if done:
            self._file.book.posted(done[-1].seq)
        # Last: who is interrupted before this does all of it once more.
        self.settled = [*self.settled, *calls]


def run_calls(
    db: sqlite3.Connection,
    state: FileState,
    calls: Sequence[Call[Any]],
    unposted: Sequence[Entry] = (),
) -> Sequence[Transaction]:
    """The calls in one transaction; a call that fails before it changed anything only has an error.

    What stands in the daybook comes first. An error after changes is raised: the transaction has to
    be undone for it.
    """
    if len(calls) == 1 and not unposted:
        call = calls[0]
        tx = Transaction(db, state, read_now(call.now))
        call.answer = call.verb(tx)
        tx.finish()
        if tx.seq - state.folded >= EVERY:
            fold_sometimes(tx)
        return (tx,)
    run = _Run(db, state)
    if unposted:
        run.post(unposted)
    for alike in neighbours(calls):
        if len(alike) == 1 or not run.together(alike):
            for call in alike:
                run.one(call)
    if run.done:
        last = run.done[-1]
        last.now = max(tx.now for tx in run.done)
        fold_sometimes(last)
    return run.done


class _Run:
    """The calls of one transaction, each going on where the one before it ended."""

    def __init__(self, db: sqlite3.Connection, state: FileState) -> None:
        self.done: list[Transaction] = []
        self._db = db
        self._state = state

    def post(self, entries: Sequence[Entry]) -> None:
        tx = self._next(entries[-1].at)
        post(tx, entries)
        self.done.append(tx)

    def one(self, call: Call[Any]) -> None:
        tx = self._next(read_now(call.now))
        try:
            call.answer = call.verb(tx)
            tx.finish()
        except Exception as error:
            if _has_to_be_undone(tx, error):
                raise
            call.error = error
        else:
            self.done.append(tx)

    def together(self, calls: list[Call[Any]]) -> bool:
        """Calls that are done as one; False when one of them fails, and nothing was changed."""
        first: Any = calls[0].verb
        tx = self._next(read_now(calls[0].now))
        try:
            answers = first.together(tx, [call.verb for call in calls])
            tx.finish()
        except Exception as error:
            if _has_to_be_undone(tx, error):
                raise
            return False
        for call, answer in zip(calls, answers, strict=True):
            call.answer = answer
        self.done.append(tx)
        return True

    def _next(self, now: float) -> Transaction:
        last = self.done[-1] if self.done else None
        tx = Transaction(self._db, self._state, now, last)
        if last is None:
            # Counts are of what is committed: brought up to date before the first change.
            tx.states(0)
        return tx


def _has_to_be_undone(tx: Transaction, error: Exception) -> bool:
    return isinstance(error, DRIVER_ERRORS) or tx.has_changed()


class Behind(Exception):
    """The tables do not have yet what stands in the daybook."""


def run_read(
    db: sqlite3.Connection,
    state: FileState,
    verb: Callable[[View], R],
    where: str,
    book: Daybook | None = None,
) -> R:
    """Behind, and nothing done, when the daybook has to be posted first."""
    try:
        db.execute("BEGIN")
        view = View(db, state)
        if book is not None and book.is_ahead_of(view.start_seq):
            raise Behind
        return verb(view)
    except Behind:
        raise
    except Exception as error:
        raise_if_damaged(db, error, where)
        raise
    finally:
        roll_back(db)


def roll_back(db: sqlite3.Connection) -> None:
    if db.in_transaction:
        # SQLite may roll back by itself.
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")


def raise_if_damaged(db: sqlite3.Connection, error: BaseException, where: str) -> None:
    """A verb that trips over what it reads may have met damage: SQLite is asked first."""
    expected = (LocalQueueError, QueueIsFull, *DRIVER_ERRORS)
    if isinstance(error, expected) or not isinstance(error, Exception):
        return
    try:
        answers = [row[0] for row in db.execute("PRAGMA quick_check(1)")]
    except sqlite3.Error as broken:
        answers = [str(broken)]
    if answers != ["ok"]:
        raise StoreCorrupt(f"{where}: the file is damaged ({answers[0]})") from error
