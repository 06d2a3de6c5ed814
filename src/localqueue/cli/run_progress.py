"""How ``pipeline run`` tells of its batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from localqueue.cli.output import say, show_json

if TYPE_CHECKING:
    from localqueue.spark.pipeline.pipeline import Progress as Batch
    from localqueue.spark.pipeline.pipeline import Run


class Shown:
    """How a run is told of: here in lines of text."""

    def batch(self, batch: Batch) -> None:
        say(
            f"batch {batch.batch}: {_events(batch.events)} in {batch.seconds:.1f} s"
            f" ({_added(batch.added)})"
        )

    def done(self, run: Run) -> None:
        batches = f"{run.batches} batch" + ("" if run.batches == 1 else "es")
        added = f": {_added(run.added)}" if run.events else ""
        say(f"{_events(run.events)} in {batches}, {run.seconds:.1f} s{added}")


class InJson(Shown):
    def batch(self, batch: Batch) -> None:
        show_json(
            {"batch": batch.batch, "events": batch.events, "added": dict(batch.added),
             "seconds": round(batch.seconds, 3)}
        )  # fmt: skip

    def done(self, run: Run) -> None:
        show_json(
            {"done": True, "batches": run.batches, "events": run.events, "added": run.added,
             "seconds": round(run.seconds, 3)}
        )  # fmt: skip


class OnATerminal(Shown):
    def __init__(self, bar: Progress, waiting: int | None) -> None:
        self._bar = bar
        self._task = bar.add_task("starting Spark", total=waiting)
        self._events, self._began = 0, 0.0

    def batch(self, batch: Batch) -> None:
        self._began = self._began or time.monotonic() - batch.seconds
        self._events += batch.events
        rate = self._events / max(time.monotonic() - self._began, 1e-3)
        text = f"batch {batch.batch}, {rate:,.0f} events/s"
        self._bar.update(self._task, completed=self._events, description=text)

    def done(self, run: Run) -> None:
        self._bar.stop()
        super().done(run)


@contextmanager
def showing(as_json: bool, waiting: int | None) -> Iterator[Shown]:
    """What fits: JSON when asked for, a bar of this length on a terminal, else lines."""
    console = Console(stderr=True)
    if as_json:
        yield InJson()
    elif not console.is_terminal:
        yield Shown()
    else:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn())
        with Progress(*columns, MofNCompleteColumn(), console=console, transient=True) as bar:
            yield OnATerminal(bar, waiting)


def _events(n: int) -> str:
    return f"{n:,} event" + ("" if n == 1 else "s")


def _added(added: Mapping[str, int]) -> str:
    return ", ".join(f"{table} {rows:+,}" for table, rows in added.items() if rows) or "nothing new"
