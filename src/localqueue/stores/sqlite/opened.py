"""What a process has of a file while it is open: connections, locks, and what it knows of it."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from typing import Literal

from localqueue.errors import StoreBusy, StoreError
from localqueue.stores.sqlite import connection, open_files
from localqueue.stores.sqlite.ballast import SIZE, Ballast
from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.connection import is_full
from localqueue.stores.sqlite.daybook.book import Daybook
from localqueue.stores.sqlite.daybook.posting import post
from localqueue.stores.sqlite.durability import SYNCS_ITSELF, Wal, prepare_to_write, sync_folder
from localqueue.stores.sqlite.identity import Identity
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.turnstile import DISK_FULL, SYNC_FAILED, Lock, has_marks, make_lock
from localqueue.stores.sqlite.verbs.fold import fold_sometimes
from localqueue.stores.sqlite.view import FileState, Transaction

_log = logging.getLogger(__name__)
FULL_WAL = connection.CHECKPOINT_AT * 4096
"""About how large the -wal is when SQLite makes a checkpoint and begins it anew."""
FIRST_WITH_DAYBOOK = 5
"""The version of the schema."""
LARGEST_WAL = 64 * 1024 * 1024
LOOK_AT_WAL = 64
"""Commits between two looks at its size."""
WRITE_BEHIND = 64
"""Commits between two times that the system is asked to begin writing the -wal."""
MAKE_READY = 8
"""Commits between two looks whether they have come to the end of the -wal."""
LONGEST_RESTART = 0.2
LONGEST_CLOSE = 5.0


class OpenFile:
    """One writing connection, reading ones beside it, and the lock between processes."""

    def __init__(
        self,
        companions: Companions,
        *,
        durability: str,
        timeout: float,
        deadline: float,
        network: bool,
    ) -> None:
        self.pid = os.getpid()
        self._closed = True
        self.path = companions.database
        self.timeout = timeout
        self._busy_timeout = max(0.0, deadline - time.monotonic())
        self.readers: list[sqlite3.Connection] = []
        self.reading = 0
        """Readers at work: their connections are not in the list."""
        self.disk_full = False
        self._commits = 0
        self._syncs = SYNCS_ITSELF and durability == "full"
        self._is_tidy = False
        """Whether nothing has to be remembered beside the database."""
        self._is_last = False
        """Whether that is so, and nobody else has the file open."""
        self._pinned = 0
        """How large the -wal was when it could not be started anew."""
        self._companions = companions
        with contextlib.ExitStack() as undo:
            self.inode = connection.prepare_file(
                self.path, network=network, patience=deadline - time.monotonic()
            )
            open_files.take(self.inode, deadline - time.monotonic())
            undo.callback(open_files.give_back, self.inode)
            with connection.os_errors(self.path):
                self._user = companions.enter()
                undo.callback(self._leave_unopened)
                self.lock: Lock = make_lock(companions.lock, companions.turn)
            undo.callback(self.lock.close)
            if self._syncs:
                prepare_to_write()
            self.lock.acquire(deadline)
            try:
                left = max(0.0, deadline - time.monotonic())
                self.writer = connection.connect(self.path, durability=durability, timeout=left)
                undo.callback(self.writer.close)
                (version,) = self.writer.execute("PRAGMA user_version").fetchone()
                if 0 < version < FIRST_WITH_DAYBOOK:
                    # Who has the file open knows no daybook, and would use the numbers of what is
                    # noted. So nothing is, until all have left.
                    companions.no_notes.touch(mode=0o600)
                connection.bring_up_to_date(self.writer, str(self.path))
                identity = Identity(self.writer.execute(SQL.identities).fetchall())
                self.state = FileState(identity, self.writer.cursor(), companions.folder)
                with connection.os_errors(self.path):
                    self.wal = Wal(companions.wal)
                    undo.callback(self.wal.close)
                    # The names of the -wal, and of a file that is new, before the first answer.
                    self.wal.sync()
                    sync_folder(self.path.parent)
            finally:
                self.lock.release()
            self.book = Daybook(
                companions.daybook,
                self.path,
                self.writer,
                self.state,
                lasts=self._syncs,
                takes_notes=not companions.no_notes.exists(),
            )
            self.ballast = Ballast(companions.ballast)
            self.ballast.make()
            undo.pop_all()
        self._closed = False

    def __del__(self) -> None:
        # Descriptors are not closed with their owner.
        if not self._closed and self.pid == os.getpid():
            with contextlib.suppress(Exception):
                self.close(patience=0.0)

    def close(self, *, tidy: bool = True, patience: float = LONGEST_CLOSE) -> None:
        """Under the lock: the last connection to close makes a checkpoint."""
        self._closed = True
        held = self._acquire_to_close(min(self.timeout, patience))
        with contextlib.ExitStack() as last:
            # Each of them, whatever becomes of the others.
            last.callback(self._leave)
            last.callback(open_files.give_back, self.inode)
            last.callback(self.book.close)
            last.callback(lambda: self.wal.close())  # it may be another one by then
            last.callback(self.lock.close)
            if held:
                last.callback(self.lock.release)
                last.callback(self._remove_book)
            for db in (self.writer, *self.readers):
                last.callback(db.close)
            if held:
                self._is_tidy = self._post_the_rest() and not self.lock.marks() and tidy

    def _acquire_to_close(self, patience: float) -> bool:
        if not self.lock.is_in_place():
            _log.warning(
                "%s: its folder of locks was removed while it was open: what is left in its daybook"
                " is for the next",
                self.path,
            )
            return False
        try:
            self.lock.acquire(time.monotonic() + patience)
        except StoreBusy:
            return False
        return True

    def _remove_book(self) -> None:
        """Under the lock: who comes after that may note something and die before we are gone.

        When all else is done: who is not the last one no longer counts as being there.
        """
        self._is_last = self._is_tidy and self._companions.be_alone(self._user)
        if self._is_last:
            # All of it is posted: it may also stay, or be gone with its folder.
            with contextlib.suppress(OSError):
                self._companions.daybook.unlink()

    def _leave(self) -> None:
        self._companions.leave(self._user, tidy=self._is_last)

    def _leave_unopened(self) -> None:
        """What others have left to be done, in marks or in a daybook, stays."""
        alone = self._companions.be_alone(self._user)
        tidy = alone and not has_marks(self._companions.lock)
        self._companions.leave(self._user, tidy=tidy)

    def leave_to_parent(self) -> None:
        """In a child of a fork that did not wait: give up what would keep the parent's lock.

        The connections stay as they are. Closing them here would touch the parent's file.
        """
        self._closed = True
        self.lock.close()
        self.wal.close()
        self.book.close()
        self._companions.leave(self._user, tidy=False)

    # --- under the lock -----------------------------------------------------------------------
    def mind_marks(self) -> None:
        """Do what an earlier holder of the lock, in any process, left to be done."""
        marks = self.lock.marks()
        if not self.lock.was_ours:
            self.state.upto = None
            self.book.disown()
        if not marks:
            self.disk_full = False
            return
        if marks[SYNC_FAILED]:
            self._repair()
        # Not as it was before: a repair may have found the disk full.
        self.disk_full = self.lock.is_marked(DISK_FULL)
        if self.disk_full and self.ballast.is_time_to_look() and self._has_room():
            self.lock.mark(DISK_FULL, False)
            self.disk_full = False

    def post(self) -> bool:
        """Bring what stands in the daybook into the tables; whether there was anything."""
        state = self.state
        state.hand.execute("BEGIN IMMEDIATE")
        try:
            entries = self.book.unposted()
            if not entries:
                return False
            tx = Transaction(self.writer, state, entries[-1].at)
            post(tx, entries)
            fold_sometimes(tx)
            state.hand.execute("COMMIT")
            tx.committed()
            self.book.posted(tx.seq, only=True)
        except BaseException:
            # Committed or not, and known or not: who comes next looks.
            state.upto = None
            raise
        finally:
            if self.writer.in_transaction:
                state.hand.execute("ROLLBACK")
        return True

    def post_the_rest(self, deadline: float) -> None:
        """The same for who does not have the lock, and can do without."""
        with contextlib.suppress(StoreBusy):
            self.lock.acquire(deadline)
            try:
                self._post_the_rest()
            finally:
                self.lock.release()

    def _post_the_rest(self) -> bool:
        """Whether nothing is left in the daybook, so that it can go."""
        try:
            self.mind_marks()
            self.post()
            if self.book.needs_lasting_tables():
                # The -wal may stay, when a foreign program has the file open.
                self._sync_tables()
        except (StoreError, OSError, sqlite3.Error) as error:
            _log.warning("%s: what is left in its daybook is for the next: %s", self.path, error)
            return False
        return True

    def _sync_tables(self) -> None:
        try:
            self.wal.sync()
        except OSError:
            # Others would go on behind a hole in it, and later syncs prove nothing.
            with contextlib.suppress(OSError):
                self.lock.mark(SYNC_FAILED, True)
            raise

    def give_up_ballast(self) -> None:
        """The disk is full: from now on only what does not need more of it."""
        self.ballast.give_up()
        self.lock.mark(DISK_FULL, True)
        self.disk_full = True

    def wait_no_longer_than(self, deadline: float) -> None:
        """How long SQLite waits for a foreign program that has locked the file."""
        left = deadline - time.monotonic()
        if abs(left - self._busy_timeout) > 0.1 * self.timeout:
            left = max(0.0, left)
            self.writer.execute(f"PRAGMA busy_timeout = {int(left * 1000)}")
            self._busy_timeout = left

    def look_at_wal(self) -> None:
        """SQLite makes checkpoints by itself; where readers never pause it does not come to it.

        What was committed stays so, whatever becomes of this.
        """
        self._commits += 1
        if self._commits % LOOK_AT_WAL == 0:
            with contextlib.suppress(OSError, sqlite3.Error):
                size = self.wal.size()
                if size > LARGEST_WAL + self._pinned:
                    # One who reads for long keeps it from starting anew: next time much later.
                    self._pinned = 0 if self._restart_wal("RESTART") else size

    def make_wal_ready(self) -> None:
        """Inside a transaction, where commits are synced: see ``Wal.make_ready``."""
        if self._syncs and self._commits % MAKE_READY == MAKE_READY - 1 and not self.disk_full:
            self.wal.make_ready(FULL_WAL)

    def write_behind(self) -> None:
        """For commits that nobody syncs, without the lock: see ``Placed.start_writing``."""
        if self._commits % WRITE_BEHIND == 0:
            self.wal.start_writing()

    def _restart_wal(self, how: Literal["RESTART", "TRUNCATE"]) -> bool:
        """Whether all of it is in the database, and the next commit begins at its start."""
        self.writer.execute(f"PRAGMA busy_timeout = {int(LONGEST_RESTART * 1000)}")
        try:
            busy = self.writer.execute(f"PRAGMA wal_checkpoint({how})").fetchone()[0]
        finally:
            self.writer.execute(f"PRAGMA busy_timeout = {int(self._busy_timeout * 1000)}")
        return not busy

    def _has_room(self) -> bool:
        """On the disk, or in the database itself: it keeps the pages of what was removed."""
        if self.ballast.make():
            return True
        with contextlib.suppress(sqlite3.Error):
            # Draining has filled the -wal, and that may be what is missing.
            if self._restart_wal("TRUNCATE") and self.ballast.make():
                return True
        (pages,) = self.writer.execute("PRAGMA freelist_count").fetchone()
        (size,) = self.writer.execute("PRAGMA page_size").fetchone()
        return bool(pages * size >= SIZE)

    def _repair(self) -> None:
        """After a failed sync the -wal cannot be trusted: everything goes into the database.

        The pages that the disk refused count as written for the system, and later syncs succeed
        without them. Only their copies in memory are right, and a checkpoint writes those.
        """
        try:
            is_done = self._move_all_into_database()
        except sqlite3.Error as error:
            if not is_full(error):
                raise
            # Until this has succeeded nothing can be taken out either.
            self.give_up_ballast()
            is_done = self._move_all_into_database()
        if not is_done:
            raise StoreError(
                f"{self.path}: the disk failed, and the file cannot be repaired while others read"
                " it; nothing is stored until then"
            )
        old, self.wal = self.wal, Wal(self._companions.wal)
        old.close()
        self.book.let_go()
        self.lock.mark(SYNC_FAILED, False)

    def _move_all_into_database(self) -> bool:
        """False when those who read keep it from being done."""
        self.post()
        busy = self.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        return not busy
