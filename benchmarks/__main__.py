"""``python -m benchmarks batches|backlog|single``: measure, and print a table or JSON."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import backlog, batches, single
from benchmarks.report import Report

NAMES = ("batches", "backlog", "single")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for. 1 when ``--check`` was given and a target was missed."""
    asked = _parser().parse_args(arguments)
    reports = []
    for name in asked.which or NAMES:
        with tempfile.TemporaryDirectory(dir=asked.folder, prefix="benchmark-") as folder:
            for report in _run(name, Path(folder), asked):
                reports.append(report)
                if not asked.json:
                    print(report.as_table(), end="\n\n", flush=True)
    if asked.json:
        print(json.dumps([report.as_dict() for report in reports], indent=2))
    missed = any(row.met is False for report in reports for row in report.rows)
    return 1 if asked.check and missed else 0


def _run(name: str, folder: Path, asked: argparse.Namespace) -> Iterator[Report]:
    quick: bool = asked.quick
    match name:
        case "batches":
            return batches.run(folder, rounds=5) if quick else batches.run(folder)
        case "single":
            return single.run(folder, messages=300, rounds=3) if quick else single.run(folder)
    size = asked.size or (20_000 if quick else 1_000_000)
    times = 60 if quick else 200
    return backlog.run(folder, size=size, times=times, rounds=1 if quick else 3)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="How fast it is, as ratios of two things measured in one run.",
        epilog="docs/benchmarks.md says what is measured, and what it showed.",
    )
    parser.add_argument(
        "which", nargs="*", choices=[[], *NAMES], metavar="|".join(NAMES), help="default: all"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes, rougher")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--size", type=int, help="backlog: how many wait (default: 1,000,000)")
    parser.add_argument(
        "--folder", type=Path, help="where to put the files (default: the temporary folder)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
