"""Saving what is sound from a damaged file into a new one; the damaged one is only read."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localqueue.errors import StoreBusy, StoreCorrupt, StoreUnsupported
from localqueue.stores.sqlite import connection
from localqueue.stores.sqlite.operations.check import check
from localqueue.stores.sqlite.operations.daybook import DaybookImage
from localqueue.stores.sqlite.operations.image import Image
from localqueue.stores.sqlite.operations.mend import Mending
from localqueue.stores.sqlite.operations.new_file import as_path, check_target, new_file
from localqueue.stores.sqlite.operations.noted import bring_over_noted
from localqueue.stores.sqlite.operations.rescue import Rescue
from localqueue.stores.sqlite.sql import APPLICATION_ID, SCHEMA_VERSION

LATEST_VERSION = 10_000
"""No release will have a higher schema version: one that is in a file is damage."""
_COUNTED = ("queue", "message", "event", "record")


@dataclass(frozen=True, slots=True)
class LostMessage:
    """A message that could not be saved, as far as it is known."""

    queue: str | None
    id: str
    why: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SalvageReport:
    """What was saved, and what was not."""

    path: str
    queues: int
    messages: int
    events: int
    records: int
    from_daybook: int
    """Events that stood only in the daybook beside the file."""
    lost: tuple[LostMessage, ...]
    """Messages of which something was found, but not all."""
    problems: tuple[str, ...]
    """What else is missing or was guessed, in sentences."""
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether nothing is missing."""
        return not self.lost and not self.problems

    def as_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self), "lost": [one.as_dict() for one in self.lost]}


def salvage(damaged: str | Path, target: str | Path, *, overwrite: bool = False) -> SalvageReport:
    """Read what can be read of ``damaged``, and make a new file of it at ``target``.

    Works on a file that no store opens. Every message whose checksum agrees comes over with its id,
    attempts, history and dedupe key; what was leased is ready again. What stands in the daybook
    beside the file comes over as well. Both stay as they are, and nobody may write meanwhile.
    StoreCorrupt when there is nothing to save.
    """
    began = time.monotonic()
    source = as_path(damaged)
    goal = check_target(target, source, overwrite=overwrite)
    with (
        Image(source) as image,
        DaybookImage(source) as daybook,
        new_file(goal, overwrite=overwrite) as temporary,
    ):
        with connection.translated(str(goal)), _filled(temporary) as db:
            noted, lost, problems = _save(image, daybook, db)
            queues, messages, events, records = (_count(db, table) for table in _COUNTED)
        if not queues:
            raise StoreCorrupt(f"{source}: nothing of a queue was found in it")
        if not (image.is_as_before() and daybook.is_as_before()):
            raise StoreBusy(f"{source} was written while it was read; stop who uses it, and repeat")
        problems += [f"in the new file: {problem}" for problem in _check(temporary)]
    seconds = time.monotonic() - began
    return SalvageReport(
        str(goal), queues, messages, events, records, noted, lost, tuple(problems), seconds
    )


def _check_whose(image: Image, rescue: Rescue) -> None:
    header = image.header
    if header is None:
        rescue.problems.insert(0, "the first page of the file, which says what it is, is lost")
        return
    if SCHEMA_VERSION < header.version < LATEST_VERSION:
        raise StoreUnsupported(
            f"{image.path} was written by a newer release (schema version {header.version});"
            " upgrade localqueue to salvage it"
        )
    if header.application != APPLICATION_ID:
        if len(rescue.layout.missing) * 2 > len(rescue.layout.tables):
            raise StoreUnsupported(f"{image.path} belongs to another application")
        rescue.problems.insert(0, "the file does not say whose it is, but its tables are ours")


@contextlib.contextmanager
def _filled(path: Path) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None)
    try:
        # Nobody else has it, and it gets its name only when it is whole.
        for pragma in ("journal_mode = off", "synchronous = off", "temp_store = 2"):
            db.execute(f"PRAGMA {pragma}").fetchall()
        connection.bring_up_to_date(db, str(path))
        db.execute("DELETE FROM identity")
        db.execute("DELETE FROM mark")
        db.execute("BEGIN")
        yield db
        db.execute("COMMIT")
        db.execute("PRAGMA journal_mode = delete").fetchall()
    finally:
        db.close()


def _save(
    image: Image, daybook: DaybookImage, db: sqlite3.Connection
) -> tuple[int, tuple[LostMessage, ...], list[str]]:
    rescue = Rescue(image, db)
    _check_whose(image, rescue)
    rescue.problems[:0] = image.problems
    rescue.bring_over()
    noted = bring_over_noted(daybook, db)
    rescue.problems += daybook.problems
    mending = Mending(db, rescue)
    mending.mend()
    lost = tuple(LostMessage(queue, public, why) for queue, public, why in mending.named())
    return noted, lost, mending.problems


def _check(path: Path) -> list[str]:
    return [str(problem) for problem in check(path, timeout=0.0).problems]


def _count(db: sqlite3.Connection, table: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
