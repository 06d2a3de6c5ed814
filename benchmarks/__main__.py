"""``python -m benchmarks``: measure, and print tables or JSON; or renew the page of the docs."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import backlog, batches, page, processes, settle, single, threads, wakeups, workers
from benchmarks.peers import race
from benchmarks.results import Result, as_json, save

NAMES = (
    "peers", "single", "batches", "settle", "workers", "threads", "processes", "wakeups", "backlog",
    "spark", "pipeline",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for. 1 when ``--check`` was given and a target was missed."""
    asked = _parser().parse_args(arguments)
    if asked.write:
        return _write(asked.write)
    results: list[Result] = []
    for name in asked.which or NAMES:
        with tempfile.TemporaryDirectory(dir=asked.folder, prefix="benchmark-") as folder:
            for result in _run(name, Path(folder), asked):
                results.append(result)
                if not asked.json:
                    print(result.as_table(), end="\n\n", flush=True)
        if asked.save:
            save(asked.save, [result for result in results if result.name == name], NAMES)
    if asked.json:
        print(as_json(results), end="")
    missed = any(result.missed for result in results)
    return 1 if asked.check and missed else 0


def _run(name: str, folder: Path, asked: argparse.Namespace) -> Iterator[Result]:
    quick: bool = asked.quick
    match name:
        case "batches":
            return batches.run(folder, rounds=5) if quick else batches.run(folder)
        case "single":
            return single.run(folder, messages=300, rounds=3) if quick else single.run(folder)
        case "settle":
            return settle.run(folder, messages=200, rounds=3) if quick else settle.run(folder)
        case "workers":
            if quick:
                size = asked.size or 50_000
                return workers.run(folder, messages=10_000, waiting=size, wakes=200)
            return workers.run(folder, waiting=asked.size or 1_000_000)
        case "threads":
            return threads.run(folder, messages=640, rounds=3) if quick else threads.run(folder)
        case "processes":
            return processes.run(folder, duration=asked.seconds or (5.0 if quick else 30.0))
        case "wakeups":
            return wakeups.run(folder, messages=200, idle=3.0) if quick else wakeups.run(folder)
        case "peers":
            size = asked.size or (1000 if quick else 100_000)
            if quick:
                return race.run(folder, size=size, calls=25, rounds=3, warm_up=1)
            return race.run(folder, size=size)
        case "spark":
            return _spark(folder, asked.size or (20_000 if quick else 1_000_000), quick=quick)
        case "pipeline":
            return _pipeline(folder, asked.size or (20_000 if quick else 1_000_000), quick=quick)
    size = asked.size or (20_000 if quick else 1_000_000)
    times = 60 if quick else 200
    return backlog.run(folder, size=size, times=times, rounds=1 if quick else 3)


def _spark(folder: Path, size: int, *, quick: bool) -> Iterator[Result]:
    # Loaded only for this one.
    from benchmarks.spark import latency, read, workers, write

    rounds = 1 if quick else 3
    yield from read.run(_within(folder, "read"), rows=size, rounds=rounds)
    yield from write.run(_within(folder, "write"), rows=size, rounds=rounds)
    there = _within(folder, "latency")
    yield from latency.run(there, messages=30) if quick else latency.run(there)
    there = _within(folder, "workers")
    yield from (
        workers.run(there, messages=5000, busy_messages=200, rounds=1)
        if quick
        else workers.run(there)
    )


def _pipeline(folder: Path, size: int, *, quick: bool) -> Iterator[Result]:
    from benchmarks.spark import pipeline

    if quick:
        return pipeline.run(folder, events=size, batches=60, rounds=1)
    return pipeline.run(folder, events=size)


def _within(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir()
    return made


def _write(folder: Path) -> int:
    for path, text in page.outdated(folder).items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="How fast it is, as ratios of things measured in one run.",
        epilog="docs/benchmarks.md says what is measured, and what it showed.",
    )
    parser.add_argument(
        "which", nargs="*", choices=[[], *NAMES], metavar="|".join(NAMES), help="default: all"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes, rougher")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument(
        "--size",
        type=int,
        help="how many: backlog, workers, spark, pipeline (1,000,000), peers (100,000)",
    )
    parser.add_argument("--seconds", type=float, help="how long: processes (30)")
    parser.add_argument(
        "--folder", type=Path, help="where to put the files (default: the temporary folder)"
    )
    parser.add_argument(
        "--save", type=Path, metavar="FILE", help="keep the results in FILE, beside earlier ones"
    )
    parser.add_argument(
        "--write",
        type=Path,
        metavar="DOCS",
        help="measure nothing: bring the results of DOCS/benchmarks.json into its page and picture",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
