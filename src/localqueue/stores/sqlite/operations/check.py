"""Looking for anything that is wrong in a file, without touching it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localqueue.stores.sqlite.operations.invariants import (
    DAMAGE,
    RULES,
    UNKNOWN,
    Bounds,
    CheckProblem,
    reraise_unless_damage,
)
from localqueue.stores.sqlite.operations.snapshot import Progress, Snapshot, in_one_snapshot

MOST_PROBLEMS = 1_000


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What was found. ``ok`` when nothing is wrong."""

    path: str
    problems: tuple[CheckProblem, ...]
    """At most 1,000 of them."""
    messages: int
    events: int
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self), "problems": [p.as_dict() for p in self.problems]}


def check(path: Path, *, timeout: float, on_progress: Progress | None = None) -> CheckReport:
    """Check the file at ``path`` as it is at one moment; see ``SQLiteQueueStore.check``."""
    began = time.monotonic()

    def work(snapshot: Snapshot) -> CheckReport:
        problems: list[CheckProblem] = []
        for problem in _find(snapshot, on_progress):
            problems.append(problem)
            if len(problems) == MOST_PROBLEMS:
                break
        messages, events = (_count(snapshot.db, table) for table in ("message", "event"))
        seconds = time.monotonic() - began
        return CheckReport(str(path), tuple(problems), messages, events, seconds)

    return in_one_snapshot(path, timeout, work)


def _find(snapshot: Snapshot, on_progress: Progress | None) -> Iterator[CheckProblem]:
    db = snapshot.db
    try:
        bounds = Bounds.of(db)
    except DAMAGE as error:
        reraise_unless_damage(error)
        bounds = UNKNOWN
    for done, (name, rule) in enumerate(RULES.items()):
        snapshot.pause()
        if on_progress is not None:
            on_progress(done, len(RULES))
        try:
            yield from rule(db, bounds)
        except DAMAGE as error:
            reraise_unless_damage(error)
            yield CheckProblem("file", "", f"{name} cannot be checked: {error}")
    if on_progress is not None:
        on_progress(len(RULES), len(RULES))


def _count(db: sqlite3.Connection, table: str) -> int:
    try:
        return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    except DAMAGE as error:
        reraise_unless_damage(error)
        return 0
