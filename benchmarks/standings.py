"""Several queues beside each other in several disciplines: a table to read, or JSON to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from benchmarks.markdown import duration, table
from benchmarks.report import heading


@dataclass(frozen=True, slots=True)
class Cell:
    """One queue in one discipline."""

    seconds: float
    """For one message."""
    ratio: float
    """How many times as long as ours it takes."""
    at_least: float | None = None
    """The target: what ``ratio`` should be; a cell without one is only told."""

    @property
    def met(self) -> bool | None:
        return None if self.at_least is None else self.ratio >= self.at_least

    def __str__(self) -> str:
        shown = f"{duration(self.seconds)}, {self.ratio:.2f} ×"
        return f"{shown} MISSED" if self.met is False else shown


@dataclass(frozen=True, slots=True)
class Line:
    """One queue in all disciplines."""

    name: str
    kind: str
    """``ours``, ``raw`` or ``peer``."""
    cells: Sequence[Cell | None]
    """One for each discipline; None where it is not asked to compete."""
    lacks: str = ""
    """What it has not, in a few words."""


@dataclass(frozen=True, slots=True)
class Standings:
    """The answer to one question about several queues."""

    name: str
    question: str
    condition: str
    """What these standings have in common and others of the same name have not."""
    columns: Sequence[str]
    lines: Sequence[Line]
    machine: dict[str, Any]
    remarks: Sequence[str] = ()
    """Sentences about what was left out."""

    @property
    def missed(self) -> bool:
        """Whether a target was."""
        return any(cell and cell.met is False for line in self.lines for cell in line.cells)

    def as_dict(self) -> dict[str, Any]:
        fields = asdict(self)
        for shown, line in zip(fields["lines"], self.lines, strict=True):
            for beside, cell in zip(shown["cells"], line.cells, strict=True):
                if cell:
                    beside["met"] = cell.met
        return fields

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """What ``as_dict`` made."""
        lines = [Line(**line | {"cells": _cells(line["cells"])}) for line in fields["lines"]]
        return cls(**fields | {"lines": lines})

    def as_table(self) -> str:
        """The table as Markdown, so that it can be kept in the docs as it is."""
        lines = [
            [line.name, *(str(cell or "") for cell in line.cells), line.lacks]
            for line in self.lines
        ]
        return "\n".join(
            [
                *heading(self.name, f"{self.question}, {self.condition}", self.machine),
                *table(["", *self.columns, "has no"], lines),
                *(f"\n{remark}" for remark in self.remarks),
            ]
        )


def _cells(shown: Sequence[dict[str, Any] | None]) -> list[Cell | None]:
    return [
        Cell(cell["seconds"], cell["ratio"], cell["at_least"]) if cell else None for cell in shown
    ]
