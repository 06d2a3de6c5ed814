"""The report in a few lines of text."""

from __future__ import annotations

from pathlib import Path

from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.rates import FAILURE_RATE
from localqueue.spark.pipeline.report import units
from localqueue.spark.pipeline.report.figures import Figures, figures_of
from localqueue.spark.pipeline.report.series import Series

HEADINGS = (
    *("queue", "put", "finished", "rate", "wait p50", "wait p95", "run p50", "run p95"),
    *("failed", "dead letters", "backlog", "busy", "in time"),
)
QUEUES, ERRORS = 20, 5
"""How many of each are listed."""


def summary(lake: Lake | str | Path | Figures) -> str:
    """What the page says, as plain lines for a terminal."""
    figures = (
        lake
        if isinstance(lake, Figures)
        else figures_of(lake if isinstance(lake, Lake) else Lake(lake))
    )
    lines = [headline(figures)]
    rows = rows_of_queues(figures)
    if rows:
        lines += ["", *_aligned([HEADINGS, *rows])]
    if figures.errors:
        lines += ["", *_aligned([("times", "queue", "error"), *rows_of_errors(figures)])]
    return "\n".join([*lines, *remarks(figures)])


def headline(figures: Figures) -> str:
    window = figures.window
    if window is None:
        return "no events yet"
    return f"{units.moment(window.start)} – {units.moment(window.end)} UTC"


def rows_of_queues(figures: Figures) -> list[tuple[str, ...]]:
    """A row for each of the busiest queues, and the last one for all together."""
    if figures.overall is None:
        return []
    rows = [_row(one) for one in figures.queues[:QUEUES]]
    return rows if len(rows) == 1 else [*rows, _row(figures.overall)]


def rows_of_errors(figures: Figures) -> list[tuple[str, ...]]:
    return [
        (units.count(error.count), error.queue, _short(f"{error.error_type}: {error.error_text}"))
        for error in figures.errors[:ERRORS]
    ]


def remarks(figures: Figures) -> list[str]:
    """What should not be overlooked."""
    found = []
    if figures.gaps:
        found.append(f"gaps: {figures.gaps} (parts of a journal that were trimmed unread)")
    if figures.quarantined:
        found.append(f"quarantine: {figures.quarantined} (rows that did not decode)")
    return found


def as_dict(figures: Figures) -> dict[str, object]:
    """The same for programs: plain numbers, times in seconds since 1970."""
    window = figures.window
    return {
        "lake": figures.lake,
        "from": None if window is None else window.start,
        "to": None if window is None else window.end,
        "queues": [_numbers(one) for one in figures.queues],
        "overall": None if figures.overall is None else _numbers(figures.overall),
        "errors": [
            {
                "queue": error.queue,
                "error_type": error.error_type,
                "error_text": error.error_text,
                "count": error.count,
                "message_id": error.message_id,
            }
            for error in figures.errors
        ],
        "quarantine": figures.quarantined,
        "gaps": figures.gaps,
    }


def _numbers(one: Series) -> dict[str, object]:
    wait, run = one.wait, one.run
    backlog = float(one.backlog[-1])
    return {
        "queue": one.name,
        **{name: one.sum(name) for name in one.counts},
        **{f"wait_p{rank}": wait.quantile(rank / 100) for rank in (50, 95, 99)},
        **{f"run_p{rank}": run.quantile(rank / 100) for rank in (50, 95, 99)},
        "backlog": None if backlog != backlog else int(backlog),
        "utilisation": one.utilisation,
        "in_time": one.in_time,
        "succeeded": one.succeeded,
    }


def _row(one: Series) -> tuple[str, ...]:
    length = one.window.spans * one.window.width
    return (
        one.name,
        units.count(one.sum("enqueued")),
        units.count(one.sum("acked")),
        units.rate(one.sum("acked") / length),
        units.duration(one.wait.quantile(0.5)),
        units.duration(one.wait.quantile(0.95)),
        units.duration(one.run.quantile(0.5)),
        units.duration(one.run.quantile(0.95)),
        units.percent(one.rate(FAILURE_RATE)),
        units.count(one.sum("died")),
        units.count(float(one.backlog[-1])),
        units.percent(one.utilisation),
        units.percent(one.in_time),
    )


def _short(text: str, most: int = 100) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """The first and the last column of texts to the left, numbers to the right."""
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    texts = [n for n, name in enumerate(rows[0]) if name in ("queue", "error")]
    return [
        "  ".join(
            cell.ljust(width) if n in texts else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
