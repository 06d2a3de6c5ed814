"""How verbs get into a file. What a verb does there is not known here."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeVar

from localqueue.clock import Now
from localqueue.errors import StoreBusy, StoreError
from localqueue.stores.sqlite import connection, fork, process_end
from localqueue.stores.sqlite.commit import Behind, Group, run_read
from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.daybook.book import Daybook
from localqueue.stores.sqlite.durability import SYNCS_ITSELF, Placed, outcome_unknown
from localqueue.stores.sqlite.group_commit import (
    GROWS,
    PLAIN,
    Call,
    GroupCommit,
    Listener,
    Manner,
    Nobody,
    Verb,
    finish,
)
from localqueue.stores.sqlite.holding import Holding
from localqueue.stores.sqlite.opened import OpenFile
from localqueue.stores.sqlite.turnstile import SYNC_FAILED
from localqueue.stores.sqlite.view import Transaction, View
from localqueue.stores.sqlite.wakeup import Wakeups

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


@dataclass(slots=True)
class _Figures:
    """What was done so far."""

    calls: int = 0
    commits: int = 0
    largest_group: int = 0
    syncs: int = 0
    sync_time: float = 0.0

    def count(self, calls: int) -> None:
        """One commit for so many calls."""
        self.calls += calls
        self.commits += 1
        if calls > self.largest_group:
            self.largest_group = calls


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
        self._holding = Holding(companions, durability=durability, timeout=timeout, network=network)
        self._syncs = SYNCS_ITSELF and durability == "full"
        self._timeout = timeout
        self._wakeups = wakeups
        self._figures = _Figures()
        self._group = self._new_group()
        self._forking: Call[None] | None = None
        fork.watch(self)
        process_end.watch(self)

    def write(self, verb: Verb[R], now: Now, manner: Manner = PLAIN) -> R:
        return self._group.run(Call(verb, now, time.monotonic() + self._timeout, manner))

    def submit_for(
        self, listener: Listener, verb: Verb[R], now: Now, manner: Manner = PLAIN
    ) -> Call[R]:
        """The same without waiting: a helper thread does the work, and tells the listener."""
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
        held = self._group.hold(deadline)
        try:
            file = self._holding.opened(deadline)
            with self._holding.translated():
                file.lock.acquire(deadline)
                try:
                    connection.check_same_file(self._holding.name, file.inode)
                    file.mind_marks()
                    file.post()
                    return work(file.writer)
                finally:
                    file.state.upto = None
                    file.lock.release()
        finally:
            self._group.let_go(held)

    def read(self, verb: Callable[[View], R], *, lasting: bool = False) -> R:
        holding, looks = self._holding, True
        while True:
            with holding.translated(), holding.reading() as (file, db):
                if lasting and self._syncs:
                    self._make_lasting(file)
                try:
                    return run_read(
                        db, file.state, verb, holding.name, file.book if looks else None
                    )
                except Behind:
                    # What is noted after this is newer than the question.
                    looks = False
            self.write(_do_nothing, 0.0)

    def figures(self) -> dict[str, float]:
        """What this process has done here so far."""
        file = self._holding.file
        return {
            **asdict(self._figures),
            "lock_waits": 0 if file is None else file.lock.waits,
            "longest_lock_wait": 0.0 if file is None else file.lock.longest_wait,
        }

    def is_unused(self) -> bool:
        """Whether no call has opened it yet."""
        return self._holding.file is None and not self._holding.is_closed

    def close(self, patience: float | None = None) -> None:
        patience = self._timeout if patience is None else patience
        self._holding.refuse()
        held = self._group.hold(time.monotonic() + patience)
        try:
            self._holding.close(patience)
        finally:
            self._group.let_go(held)
            self._group.stop()

    def close_at_exit(self) -> None:
        """Nobody closed it: leave no files behind, unless somebody is still at work."""
        with contextlib.suppress(StoreError):
            self.close(LONGEST_AT_EXIT)

    def _new_group(self) -> GroupCommit:
        return GroupCommit(self._work, self._take_back, gathers=self._syncs)

    # --- what the leader of a group does --------------------------------------------------------
    def _work(self, own: Call[Any], take: Callable[[], list[Call[Any]]]) -> None:
        file = self._holding.opened(own.deadline)
        group = Group(file, self._holding.translate)
        try:
            file.lock.acquire(own.deadline)
            try:
                connection.check_same_file(self._holding.name, file.inode)
                file.wait_no_longer_than(own.deadline)
                file.mind_marks()
                if not group.note(own, take, lambda: self._sync_tables(file)):
                    group.commit(take)
                    file.look_at_wal()
                    if self._syncs and group.has_to_last():
                        # The disk works while we do what is left.
                        file.wal.start_writing()
            finally:
                file.lock.release()
            self._answer(file, group, own)
        except Exception as error:
            translated = self._holding.translate(error)
            if translated is error:
                raise
            raise translated from error
        except BaseException:
            # Only the leader is interrupted: the others get what they came for.
            own.gone = True
            if group.settled:
                self._answer(file, group, own)
            raise

    def _answer(self, file: OpenFile, group: Group, own: Call[Any]) -> None:
        """Make it durable, then tell everybody."""
        if group.ready or group.room:
            waited_for = file.lock.is_waited_for()
            self._wakeups.tell(group.ready, group.room, waited_for=waited_for)
        calls = group.settled
        self._figures.count(len(calls))
        try:
            if not self._syncs:
                if not group.noted:
                    file.write_behind()
            elif group.has_to_last():
                if group.noted:
                    self._sync(file, file.book)
                else:
                    self._sync_tables(file)
        except StoreError as error:
            for call in calls:
                call.error = call.error or error
        if len(calls) != 1 or calls[0] is not own:
            others = [call for call in calls if call is not own]
            finish(others)
            for call in others:
                if call.gone:
                    self._take_back(call)

    def _sync_tables(self, file: OpenFile) -> None:
        """For who leads: nobody else commits meanwhile."""
        self._sync(file, file.wal)
        file.book.wal_is_lasting = True

    def _sync(self, file: OpenFile, what: Placed | Daybook) -> None:
        began = time.perf_counter()
        try:
            if what is file.book:
                # Entries without the tables that they follow on are nothing.
                file.wal.check_place()
            what.sync()
        except OSError as error:
            # A file system that became read-only takes no mark: then nothing is written at all.
            with contextlib.suppress(OSError):
                file.lock.mark(SYNC_FAILED, True)
            raise outcome_unknown(self._holding.name, error) from error
        self._figures.syncs += 1
        self._figures.sync_time += time.perf_counter() - began

    def _make_lasting(self, file: OpenFile) -> None:
        if file.lock.is_marked(SYNC_FAILED):
            # Another sync would prove nothing; whoever writes repairs the file first.
            self.write(_do_nothing, 0.0, GROWS)
        else:
            self._sync(file, file.wal)

    def _take_back(self, call: Call[Any]) -> None:
        """Nobody will see the answer."""
        undo = call.manner.undo
        if undo is None or call.error is not None or self._holding.is_closed:
            return
        verb = undo(call.answer) if hasattr(call, "answer") else None
        if verb is not None:
            self.submit_for(Nobody(), verb, call.now)

    # --- around a fork --------------------------------------------------------------------------
    def before_fork(self) -> None:
        """Let nobody work, and close the file: both sides open it again when needed."""
        with contextlib.suppress(StoreBusy):
            self._forking = self._group.hold(time.monotonic() + self._timeout)
            self._holding.before_fork()
        self._wakeups.before_fork()

    def after_fork(self, *, in_child: bool) -> None:
        held, self._forking = self._forking, None
        self._wakeups.after_fork(in_child=in_child)
        self._holding.after_fork(in_child=in_child)
        if in_child:
            # Threads that did not come along may have led.
            self._group = self._new_group()
        elif held is not None:
            self._group.let_go(held)


def _do_nothing(_: Transaction) -> None: ...
