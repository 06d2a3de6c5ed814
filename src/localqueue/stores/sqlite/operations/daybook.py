"""The daybook beside a file, which is only read: what stands in it and not in the tables."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from localqueue.errors import StoreCorrupt
from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.daybook.entries import FIRST, Entry, encode, size
from localqueue.stores.sqlite.daybook.file import SIZE, START, DaybookFile
from localqueue.stores.sqlite.identity import Identity
from localqueue.stores.sqlite.operations.snapshot import Snapshot, in_one_snapshot
from localqueue.stores.sqlite.sql import SQL

_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class DaybookImage:
    """The daybook of a database, as it is on the disk."""

    def __init__(self, database: Path) -> None:
        self._path = Companions(database).daybook
        self.problems: list[str] = []
        self._file: DaybookFile | None = None
        try:
            self._file = DaybookFile(self._path, os.open(self._path, _FLAGS))
        except FileNotFoundError:
            pass
        except OSError as error:
            self.problems.append(f"the daybook cannot be read: what stands in it is lost ({error})")
        self._before = self._content()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def is_there(self) -> bool:
        return self._file is not None

    def is_as_before(self) -> bool:
        """Whether nobody has noted anything since it was opened."""
        if self._file is None:
            return bool(self.problems) or not self._path.exists()
        return self._content() == self._before

    def entries(self, bits: Sequence[str], after: int) -> Sequence[Entry]:
        """Those after this event, up to the first that is damaged.

        ``bits`` are those that the database has; without any, the book is taken for its own.
        """
        file = self._file
        if file is None or not self._before.strip(b"\0"):
            return ()
        # Asked in any case: it learns its salt from that.
        if not any(file.belongs_to(one) for one in bits or ("",)) and bits:
            self.problems.append("the daybook is of another file, or its first bytes are damaged")
            return ()
        if file.first_seq() <= after:
            return ()
        found = [*file.entries(after)]
        end = START + sum(len(encode(entry, 0, lasts=lasts)[1]) for entry, lasts in found)
        last = found[-1][0] if found else None
        self._look_for_damage(end, None if last is None else last.seq + size(last))
        return [entry for entry, _ in found]

    def _look_for_damage(self, place: int, expected: int | None) -> None:
        """Whether the entry there is the next one, which should count and does not."""
        beginning = self._before[place : place + FIRST.size]
        if len(beginning) == FIRST.size and expected in (None, FIRST.unpack(beginning)[2]):
            self.problems.append(
                f"the daybook is damaged, or its end was never written: what stands after its first"
                f" {place - START:,} bytes is lost"
            )

    def _content(self) -> bytes:
        try:
            return b"" if self._file is None else self._file.read(0, SIZE)
        except OSError as error:
            self.problems.append(f"the daybook cannot be read: what stands in it is lost ({error})")
            return b""


def bits_of(db: sqlite3.Connection) -> list[str]:
    """All that the file has had, as far as they can be read."""
    found = []
    for row in db.execute(SQL.identities):
        with contextlib.suppress(StoreCorrupt):
            found.append(Identity([row]).bits)
    return found


def count_unposted(path: Path, timeout: float) -> int:
    """How many events stand in the daybook alone."""

    def count(snapshot: Snapshot) -> int:
        bits = bits_of(snapshot.db)
        # A file of a former version has no mark.
        (mark,) = snapshot.db.execute(SQL.read_mark, ("daybook",)).fetchone() or (0,)
        return sum(map(size, image.entries(bits[-1:], mark)))

    with DaybookImage(path) as image:
        return in_one_snapshot(path, timeout, count) if image.is_there else 0
