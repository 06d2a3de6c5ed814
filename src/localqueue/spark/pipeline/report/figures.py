"""Everything that a report says, as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.report import from_events, from_minutes
from localqueue.spark.pipeline.report.from_events import series_of_events
from localqueue.spark.pipeline.report.from_minutes import limits_of, series_of_minutes
from localqueue.spark.pipeline.report.levels import (
    Levels,
    add_stuck,
    levels_before,
    whole_minute,
)
from localqueue.spark.pipeline.report.reading import bounds, rows_of, total
from localqueue.spark.pipeline.report.series import Series
from localqueue.spark.pipeline.report.slo import Slo
from localqueue.spark.pipeline.report.table_facts import TableFacts, tables_of
from localqueue.spark.pipeline.report.top_errors import TopError, top_errors
from localqueue.spark.pipeline.report.window import Window
from localqueue.spark.pipeline.table import Table

SHORT = 30 * 60
"""A time of so many seconds has too few minutes for a chart."""
MANY_EVENTS = 5_000_000
"""More events than this are not read for finer charts."""
ALL_QUEUES = "all queues"


@dataclass(frozen=True, slots=True)
class Figures:
    """What the lake says about a time; without a window it says nothing."""

    lake: str
    made_at: datetime
    slo: Slo
    window: Window | None
    overall: Series | None
    queues: list[Series]
    """The busiest first."""
    errors: list[TopError]
    tables: list[TableFacts]
    quarantined: int
    """Rows of the journal that did not decode."""
    gaps: int
    """Parts of a journal that were gone before they were read."""


def figures_of(
    lake: Lake,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    slo: Slo | None = None,
) -> Figures:
    """The figures of [since, until), by default of all that the lake has.

    They are read from ``minutes`` and ``errors``, whose size does not depend on how many messages
    there were; a time of less than half an hour from ``events``, by the second. A longer one begins
    with the minute that ``since`` is in.
    """
    slo = slo or Slo()
    found = _series(lake, slo, since, until)
    window, series = found if found is not None else (None, {})
    queues = _named(series)
    queues.sort(key=lambda each: (-each.sum("enqueued", "acked", "attempts"), each.name))
    errors = lake.table("errors")
    return Figures(
        lake=str(lake.location),
        made_at=datetime.now(UTC),
        slo=slo,
        window=window,
        overall=Series.together(ALL_QUEUES, window, queues) if window is not None else None,
        queues=queues,
        errors=top_errors(errors, since, until) if errors is not None else [],
        tables=tables_of(lake),
        quarantined=total(lake, "quarantine"),
        gaps=total(lake, "gaps"),
    )


def _series(
    lake: Lake, slo: Slo, since: datetime | None, until: datetime | None
) -> tuple[Window, dict[tuple[str, str], Series]] | None:
    minutes = lake.table("minutes")
    if minutes is None:
        return None
    begin = whole_minute(since)
    limits = bounds(minutes, from_minutes.MOMENT, begin, until)
    if limits is None:
        return _stuck(minutes, since, until)
    events = lake.table("events")
    if events is not None and limits[1] - limits[0] < SHORT and rows_of(events) <= MANY_EVENTS:
        known, levels = limits_of(minutes), levels_before(minutes, begin)
        fine = _by_the_second(events, limits[0], slo, known, levels, since, until)
        if fine is not None:
            return fine
    window = Window.covering(*limits)
    levels = levels_before(minutes, begin)
    return window, series_of_minutes(minutes, window, slo, levels, begin, until)


def _stuck(
    minutes: Table, since: datetime | None, until: datetime | None
) -> tuple[Window, dict[tuple[str, str], Series]] | None:
    """Of a time in which nothing happened: what was waiting all the while, if there is any."""
    found: dict[tuple[str, str], Series] = {}
    if since is None:
        return None
    end = until or datetime.now(UTC)
    window = Window.covering(since.timestamp(), max(since, end).timestamp())
    add_stuck(found, levels_before(minutes, since), window)
    return (window, found) if found else None


def _by_the_second(
    events: Table,
    first_minute: float,
    slo: Slo,
    known: Mapping[str, float],
    levels: Levels,
    since: datetime | None,
    until: datetime | None,
) -> tuple[Window, dict[tuple[str, str], Series]] | None:
    limits = bounds(events, from_events.MOMENT, since, until)
    # Events that retention has taken are in minutes only.
    if limits is None or limits[0] >= first_minute + 60:
        return None
    window = Window.covering(*limits, finest=1)
    return window, series_of_events(events, window, slo, known, levels, since, until)


def _named(series: Mapping[tuple[str, str], Series]) -> list[Series]:
    """Queues of the same name in two stores are told apart by the store."""
    names = [queue for _, queue in series]
    for (store, queue), one in series.items():
        if names.count(queue) > 1:
            one.name = f"{queue} ({store[:6]})"
    return list(series.values())
