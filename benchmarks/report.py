"""What was measured: a table to read, or JSON to keep."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Self

from benchmarks.markdown import duration, table
from benchmarks.timing import seconds


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison. ``ratio`` is what the target speaks of."""

    what: str
    measured: float | None
    """Seconds for one call, or for one message of a batch; None where ``ratio`` is no ratio."""
    against: float | None
    """The same of what it is compared with."""
    ratio: float
    at_least: float | None = None
    at_most: float | None = None
    """The target: the least or the greatest ratio; a row without one is only told."""
    longest: float | None = None
    """The most seconds that ``measured`` may be."""
    more: dict[str, float] = field(default_factory=dict)
    """Other ratios of the same measurement, by name; they have no target."""

    @property
    def met(self) -> bool | None:
        """Whether it is what it should be; None without a target."""
        if self.at_least is None and self.at_most is None and self.longest is None:
            return None
        return (
            (self.at_least is None or self.ratio >= self.at_least)
            and (self.at_most is None or self.ratio <= self.at_most)
            and (self.longest is None or (self.measured or 0.0) <= self.longest)
        )

    @property
    def target(self) -> str:
        words = []
        if self.at_least is not None:
            words.append(f"≥ {self.at_least:g}")
        if self.at_most is not None:
            words.append(f"≤ {self.at_most:g}")
        if self.longest is not None:
            words.append(f"< {self.longest * 1e3:g} ms")
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Report:
    """The answer to one question."""

    name: str
    question: str
    measured: str
    """What the first column of times is."""
    against: str
    rows: Sequence[Row]
    machine: dict[str, Any]
    remarks: Sequence[str] = ()
    """Sentences about what was left out or has to be known."""

    @property
    def missed(self) -> bool:
        """Whether a target was."""
        return any(row.met is False for row in self.rows)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """What ``as_dict`` made."""
        rows = [
            Row(**{name: value for name, value in row.items() if name != "met"})
            for row in fields["rows"]
        ]
        return cls(**fields | {"rows": rows})

    def as_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        for shown, row in zip(fields["rows"], self.rows, strict=True):
            shown["met"] = row.met
        return fields

    def as_table(self) -> str:
        """The table as Markdown, so that it can be kept in the docs as it is."""
        others = list(dict.fromkeys(name for row in self.rows for name in row.more))
        heads = ["", self.measured, self.against, "ratio", *others, "target", ""]
        lines = [
            [
                row.what,
                duration(row.measured),
                duration(row.against),
                f"{row.ratio:.2f}",
                *(f"{row.more[name]:.2f}" if name in row.more else "" for name in others),
                row.target,
                {None: "", True: "met", False: "MISSED"}[row.met],
            ]
            for row in self.rows
        ]
        return "\n".join(
            [
                *heading(self.name, self.question, self.machine),
                *table(heads, lines),
                *(f"\n{remark}" for remark in self.remarks),
            ]
        )


def heading(name: str, question: str, machine: dict[str, Any]) -> list[str]:
    """What stands above a table: what was measured, and where."""
    where = ", ".join(f"{name} {value}" for name, value in machine.items())
    return [f"### {name}: {question}", "", f"{where}.", ""]


def describe_machine(folder: Path) -> dict[str, Any]:
    """What the figures depend on most."""
    return {
        "cores": os.cpu_count(),
        "file system": _file_system(folder),
        "fdatasync": f"{_sync_time(folder) * 1e3:.2f} ms",
        "Python": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
    }


def _file_system(folder: Path) -> str:
    """The type of the mount that the folder is on."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    above = [(point, kind) for point, kind in mounts if folder.resolve().is_relative_to(point)]
    return max(above, key=lambda mount: len(mount[0]), default=("", "unknown"))[1]


def _sync_time(folder: Path) -> float:
    """How long a small write takes to reach stable storage here."""
    path = folder / "sync"
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:

        def write() -> None:
            os.write(file, bytes(4096))
            os.fdatasync(file) if hasattr(os, "fdatasync") else os.fsync(file)

        return median(seconds(write) for _ in range(50))
    finally:
        os.close(file)
        path.unlink()
