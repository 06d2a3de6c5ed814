"""The daybook: plain puts, leases and acks are noted in a file first, and posted to tables later.

A transaction of SQLite writes pages of four kilobytes, one for each table and index, where a call
changes some hundred bytes. So the process that held the lock last may do without: it appends what
the call did to a file, knows in memory what that comes to, and answers. Whatever else is asked for,
by anybody, first posts the entries in its own transaction. Nobody sees the tables without them.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from localqueue.stores.sqlite.daybook.entries import FIRST, Entry, renumbered, size
from localqueue.stores.sqlite.daybook.file import SIZE, START, DaybookFile
from localqueue.stores.sqlite.daybook.knowledge import Knowledge
from localqueue.stores.sqlite.daybook.planning import Noting, Planner
from localqueue.stores.sqlite.group_commit import Call
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.view import FileState

_log = logging.getLogger(__name__)
WARM_UP = 4
"""Calls that could be noted and are not, before it begins: who puts one message needs no book."""
WORTH_IT = 8
"""Events: noting fewer before they are posted takes longer than to write them to the tables."""
MOST_EVENTS = 1024
"""In one generation: posting them is what some call has to wait for."""
LONG_PAUSE = 1024
"""Calls until a book is tried again that could not be made, or was of no use many times."""
LONGEST = 10.0
"""How long notes are taken, in seconds: then one call goes to the tables, and sweeps them. Where it
is short, who calls a few times and pauses posts each time before it begins."""


class Daybook:
    """The book of a file, as one process has it.

    ``is_ahead_of`` is for everybody; all else belongs to the one who holds the lock.
    """

    def __init__(
        self,
        path: Path,
        database: Path,
        db: sqlite3.Connection,
        state: FileState,
        *,
        lasts: bool,
        takes_notes: bool = True,
    ) -> None:
        """``lasts``: what is answered here has to be on stable storage."""
        self._takes_notes = takes_notes
        self._path = path
        self._database = database
        self._db = db
        self._state = state
        self.lasts = lasts
        self._file: DaybookFile | None = None
        self._strangers: list[DaybookFile] = []
        self._is_prepared = False
        """Whether the file is there, and as lasting or as fast as it has to be."""
        self._warm_up = self._pause = WARM_UP
        """Calls that are not noted until it begins; and how many that will be the next time."""
        self._events = 0
        self._overwrites_lasting = False
        """Whether the generation before this one had to last."""
        self.is_full = False
        self.wal_is_lasting = False
        """Whether the tables are on stable storage as they were when this generation began."""
        self.disown()

    # --- who has it -----------------------------------------------------------------------------
    def disown(self) -> None:
        """Others may have written since, here or into the tables: only the file knows."""
        self._learn_from_it()
        self.is_ours = False
        self._start_over(-1, 0.0)
        self._end = 0.0
        self._knowledge = Knowledge(self._db, 0.0)

    def _learn_from_it(self) -> None:
        """From a generation that ends: little that is noted before others come spares nothing.

        They are at work on the file as well, or much is asked for that cannot be noted.
        """
        if self._events >= WORTH_IT:
            self._pause = WARM_UP
        elif self._events:
            self._warm_up, self._pause = self._pause, min(2 * self._pause, LONG_PAUSE)

    def _start_over(self, upto: int, since: float) -> None:
        self._entries: list[Entry] = []
        self._events = 0
        self._upto = upto
        """The newest event of the tables."""
        self._newest = since
        self._place = START
        self._checksum = 0
        """Of the entry before that place."""

    def unposted(self) -> Sequence[Entry]:
        """What the tables do not have yet, inside a transaction that will post it."""
        upto = self._state.upto
        if self.is_ours and upto is not None and (not self._entries or upto == self._upto):
            return self._entries
        # What we have noted ourselves stands in the file that we have, wherever that is now.
        if self._file is not None and not self.is_ours:
            self._is_in_place()
        if self._file is None:
            self._file = DaybookFile.open(self._path)
        if self._file is None:
            return ()
        return self._read_unposted(self._file)

    def posted(self, upto: int, *, only: bool = False) -> None:
        """The tables have all of it, and the lock is ours: the next generation may begin.

        ``only``: nothing else has happened in the tables, so that we still know all of it.
        """
        if self._entries and self.lasts:
            self._overwrites_lasting = True
        self._learn_from_it()
        since = self._state.newest
        if only and self.is_ours:
            self._knowledge.go_on(since)
        else:
            self._knowledge = Knowledge(self._db, since)
            self._end = since + LONGEST
        self.is_ours = self._takes_notes
        self.wal_is_lasting = False
        self._start_over(upto, since)

    def _read_unposted(self, file: DaybookFile) -> Sequence[Entry]:
        if not file.belongs_to(self._state.identity.bits):
            self._put_aside(file)
            return ()
        (mark,) = self._db.execute(SQL.read_mark, ("daybook",)).fetchone()
        # Also of a generation that another process has posted: it may not have synced that.
        self._overwrites_lasting |= file.has_to_last()
        if file.first_seq() <= mark:
            return ()
        found = [*file.entries(mark)]
        if not found:
            # Cut short as it was noted, by a kill or a power cut, or damaged since. Left there, it
            # would be ahead of the tables for ever, and who reads would wait for it to be posted.
            _log.warning("%s: its first entry cannot be read, and does not count", self._path)
            self._begin_anew(file)
            return ()
        entries = [entry for entry, _ in found]
        (newest,) = self._db.execute(SQL.last_seq).fetchone() or (0,)
        shift = newest + 1 - entries[0].seq
        if shift == 0:
            return entries
        if shift < 0:
            # A power cut took transactions that were answered as relaxed, and what came after.
            _log.warning(
                "%s: %d events were lost with a power cut", self._path, sum(map(size, entries))
            )
            self._begin_anew(file)
            return ()
        return renumbered(entries, shift)

    def _begin_anew(self, file: DaybookFile) -> None:
        """Before anything is committed: entries that the tables have caught up with would count."""
        file.begin_anew(self._state.identity.bits)
        file.sync()

    def _put_aside(self, file: DaybookFile) -> None:
        """It belongs to another database, which was at this path before.

        One that was never written, because making it was cut short, belongs to nobody.
        """
        if file.is_blank():
            self._path.unlink()
        else:
            aside = self._path.with_name(f"{self._path.name}-{file.salt:08x}")
            _log.warning("%s is not of this file: it is kept as %s", self._path, aside.name)
            self._path.rename(aside)
        self._file = file
        self.let_go()

    # --- who reads ------------------------------------------------------------------------------
    def is_ahead_of(self, seq: int) -> bool:
        """Whether something is noted that who sees the tables up to this event does not see.

        Without the lock: where another file is at our path by now, it is only looked at.
        """
        file = self._file
        if file is not None:
            if file.first_seq() > seq:
                return True
            if file.is_in_place():
                return False
        other = DaybookFile.open(self._path)
        if other is None:
            return False
        try:
            return other.first_seq() > seq
        finally:
            other.close()

    # --- noting ---------------------------------------------------------------------------------
    def plan(self, calls: Sequence[Call[Any]]) -> Noting | None:
        """How all of these calls can be noted; None when they are for the tables.

        ``is_full`` says then whether there is only no place left in this generation.
        """
        self.is_full = False
        upto, state = self._upto, self._state
        if not self.is_ours or state.upto != upto or state.known[0] != upto:
            return None
        try:
            return self._plan(calls)
        except Exception:
            # Whatever is wrong with one of them, who asked for it hears of it from the tables.
            self.disown()
            return None
        except BaseException:
            # Interrupted: what we know may be half of it.
            self.disown()
            raise

    def _plan(self, calls: Sequence[Call[Any]]) -> Noting | None:
        planner = Planner(self._state, self._knowledge, self._newest)
        noting = planner.plan(calls, self._upto + self._events + 1, self._end)
        if noting is None or not noting.entries:
            return noting
        if self._events + noting.size() > MOST_EVENTS:
            self.is_full = True
            return None
        if not self._is_there():
            return None
        self._newest = planner.now
        assert self._file is not None
        place = noting.place = self._place
        before = self._checksum if place > START else self._file.salt
        noting.encode(before, lasts=self.lasts)
        if place + len(noting.data) > SIZE:
            self.is_full = True
            return None
        return noting

    def note(self, noting: Noting, *, starts: bool = False) -> bool:
        """Do it; False when there is no room for it, and it is for the tables.

        ``starts``: the disk is set to work at once, because somebody is about to wait for it.
        When this is interrupted, ``is_noted`` tells what became of it.
        """
        if not noting.entries:
            return True
        assert self._file is not None
        try:
            self._file.append(noting.data, noting.place)
        except OSError:
            # On some file systems writing over something takes room, too.
            self._take_back(noting)
            return False
        if starts:
            self._file.start_writing()
        self._place += len(noting.data)
        self._checksum = noting.checksum
        for entry in noting.entries:
            self._entries.append(entry)
            self._events += len(entry[3])
            self._knowledge.learn(entry)
        self._overwrites_lasting = False
        return True

    def is_noted(self, noting: Noting) -> bool:
        """After ``note`` was interrupted: whether it has happened. Our knowledge is given up."""
        try:
            noted = self._file is not None and self._file.holds(noting.data, noting.place)
            if not noted:
                self._take_back(noting)
        finally:
            self.disown()
        return noted

    def _take_back(self, noting: Noting) -> None:
        """A part of it may be there: some of the calls, but not all."""
        file = self._file
        if file is not None and file.holds(noting.data[: FIRST.size], noting.place):
            file.append(bytes(FIRST.size), noting.place)

    def needs_lasting_tables(self) -> bool:
        """Whether the entries that the next one writes over may exist nowhere else.

        Also those that it follows on: where they are lost, it counts for nothing.
        """
        return (
            self._file is not None
            and self._place == START
            and not self.wal_is_lasting
            and (self.lasts or self._overwrites_lasting)
        )

    def _is_there(self) -> bool:
        """Whether there is a file to note in; from now on there may be one."""
        if self._warm_up:
            self._warm_up -= 1
            return False
        if (self._place > START or self._is_in_place()) and self._is_prepared:
            return True
        try:
            self._file = self._file or self._existing()
            if self._file is None:
                self._file = DaybookFile.make(self._path, self._state.identity.bits, self._database)
            self._file.fill_up()
        except OSError:
            # No room, most likely: then not yet.
            self._warm_up = LONG_PAUSE
            return False
        if self.lasts:
            try:
                self._file.make_lasting()
            except OSError:
                # What the disk refused counts as written: later syncs would prove nothing.
                self._takes_notes = False
                raise
        else:
            self._file.map()
        self._is_prepared = True
        return True

    def _existing(self) -> DaybookFile | None:
        """The file that is there, with nothing in it that is not posted."""
        file = DaybookFile.open(self._path)
        if file is not None and not file.belongs_to(self._state.identity.bits):
            self._put_aside(file)
            return None
        return file

    def _is_in_place(self) -> bool:
        """For who has the lock: whether the file that we have, if any, is the one at its path.

        Asked when a generation begins, who deletes the file takes what is noted with it; and when
        others may have noted, who found it deleted and made another one.
        """
        if self._file is None:
            return False
        if not self._file.is_in_place():
            self.let_go()
            return False
        return True

    def let_go(self) -> None:
        """Of the file: who notes next opens it anew, or makes one."""
        if self._file is not None:
            # Not closed: another thread may be reading it.
            self._strangers.append(self._file)
        self._file = None
        self._is_prepared = False

    # --- the file -------------------------------------------------------------------------------
    def sync(self) -> None:
        assert self._file is not None
        self._file.sync()

    def close(self) -> None:
        file, self._file = self._file, None
        for one in self._strangers if file is None else (*self._strangers, file):
            one.close()
        self._strangers.clear()
