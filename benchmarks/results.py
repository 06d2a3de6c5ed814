"""What was measured, kept in a JSON file: one list, in which each benchmark has its last run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Report
from benchmarks.standings import Standings

Result = Report | Standings


def as_json(results: Sequence[Result]) -> str:
    shown = [result.as_dict() for result in results]
    return json.dumps(shown, indent=2, ensure_ascii=False) + "\n"


def load(path: Path) -> list[Result]:
    """The results in the file; none if there is no such file."""
    if not path.exists():
        return []
    return [
        Standings.from_dict(shown) if "lines" in shown else Report.from_dict(shown)
        for shown in json.loads(path.read_text(encoding="utf-8"))
    ]


def save(path: Path, results: Sequence[Result], order: Sequence[str]) -> None:
    """Put these results into the file instead of earlier ones of the same benchmarks.

    ``order`` names all benchmarks as they should follow each other.
    """
    measured = {result.name for result in results}
    others = [result for result in load(path) if result.name not in measured]
    kept = sorted([*others, *results], key=lambda result: order.index(result.name))
    path.write_text(as_json(kept), encoding="utf-8")
