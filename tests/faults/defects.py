"""Defects that a test plants in a worker to see that it is caught. They stand in for the driver.

Each is a connection that does something wrong with the statements it is given, as a store would
that was written wrong, or a daybook that does so with its entries; of the product's own code
nothing else is changed but what would hide it.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from localqueue.stores.sqlite.daybook.file import DaybookFile
from localqueue.stores.sqlite.turnstile import Turnstile
from tests.faults.soundness import ACKED, INFLIGHT

if TYPE_CHECKING:
    _Driver = sqlite3.Connection
else:
    # Mixed into that of sqlite3 or into that of the apsw driver.
    _Driver = object


class _Hand:
    """A cursor whose statements go through its connection, where a defect meets them."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def execute(self, statement: str, values: Any = (), /) -> Any:
        return self._db.execute(statement, values)


class _Defect(_Driver):
    def cursor(self) -> Any:  # type: ignore[override]
        return _Hand(self)


class _Standard(sqlite3.Connection):
    """That of sqlite3, with cursors that a defect does not stand in for."""

    def execute(self, statement: str, values: Any = (), /) -> sqlite3.Cursor:
        return super().cursor().execute(statement, values)

    def executemany(self, statement: str, rows: Any, /) -> sqlite3.Cursor:
        return super().cursor().executemany(statement, rows)


class AnswersBeforeCommit(_Defect):
    """Says COMMIT is done, and does it when the next transaction begins."""

    _owed = False

    def execute(self, statement: str, values: Any = (), /) -> Any:
        if statement == "COMMIT":
            self._owed = True
            statement = "SELECT 1"
        elif self._owed:
            self._owed = False
            super().execute("COMMIT")
        return super().execute(statement, values)

    @property
    def in_transaction(self) -> bool:
        return not self._owed and super().in_transaction


class AnswersBeforeItIsNoted(_Defect):
    """Says that an entry stands in the daybook, and writes it there with the next one."""

    @staticmethod
    def prepare() -> None:
        append = DaybookFile.append
        owed: list[tuple[bytes, int]] = []

        def append_later(file: DaybookFile, data: bytes, at: int) -> None:
            while owed:
                append(file, *owed.pop())
            owed.append((data, at))

        DaybookFile.append = append_later  # type: ignore[method-assign,assignment]


class UndoesAcks(_Defect):
    """Rolls back what removes messages, and answers as if it had been done.

    A store that counts on from its own last seq would leave a gap in the journal, which is seen
    before the lost answer is. So this one asks for the newest event every time.
    """

    _removes = False

    @staticmethod
    def prepare() -> None:
        look = Turnstile.marks

        def look_and_forget(lock: Turnstile) -> bytes:
            marks = look(lock)
            lock.was_ours = False
            return marks

        Turnstile.marks = look_and_forget  # type: ignore[method-assign,assignment]

    def execute(self, statement: str, values: Any = (), /) -> Any:
        if statement.startswith("DELETE FROM message"):
            self._removes = True
        elif statement == "COMMIT" and self._removes:
            statement = "ROLLBACK"
        if statement in ("COMMIT", "ROLLBACK"):
            self._removes = False
        return super().execute(statement, values)

    def executemany(self, statement: str, rows: Any, /) -> Any:
        if statement.startswith("DELETE FROM message"):
            self._removes = True
        return super().executemany(statement, rows)


class DropsEvents(_Defect):
    """Acknowledges without a word in the journal."""

    def execute(self, statement: str, values: Any = (), /) -> Any:
        if statement == "COMMIT":
            super().execute(f"DELETE FROM event WHERE kind = {ACKED}")
        return super().execute(statement, values)


class EndsLeasesAtOnce(_Defect):
    """Leases a message to two at the same time: the first lease is over when it begins."""

    def execute(self, statement: str, values: Any = (), /) -> Any:
        if statement == "COMMIT":
            super().execute(f"UPDATE message SET due_at = leased_at WHERE state = {INFLIGHT}")
        return super().execute(statement, values)


class CommitsInTheMiddle(_Defect):
    """Makes two transactions of one: the first ends with the first statement that changes a row."""

    _begun: int | None = None

    def execute(self, statement: str, values: Any = (), /) -> Any:
        answer = super().execute(statement, values)
        if statement == "BEGIN IMMEDIATE":
            self._begun = self.total_changes
        elif statement in ("COMMIT", "ROLLBACK"):
            self._begun = None
        else:
            self._split()
        return answer

    def executemany(self, statement: str, rows: Any, /) -> Any:
        answer = super().executemany(statement, rows)
        self._split()
        return answer

    def _split(self) -> None:
        if self._begun is not None and self.total_changes > self._begun:
            self._begun = None
            super().execute("COMMIT")
            super().execute("BEGIN IMMEDIATE")


DEFECTS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        AnswersBeforeCommit,
        AnswersBeforeItIsNoted,
        UndoesAcks,
        DropsEvents,
        EndsLeasesAtOnce,
        CommitsInTheMiddle,
    )
}


def prepare(defect: str) -> type[Any]:
    """The connection that has the defect, and what else it needs in this process."""
    getattr(DEFECTS[defect], "prepare", lambda: None)()
    return DEFECTS[defect]


def plant(defect: str | None) -> None:
    """Give every connection of this process to the standard library's SQLite the defect."""
    if defect is not None:
        factory = type(defect, (prepare(defect), _Standard), {})
        connect = sqlite3.connect
        sqlite3.connect = lambda *given, **options: connect(
            *given, **{"factory": factory} | options
        )
