"""How many messages waited when a report's time began: what a queue is stuck with is no event."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np

from localqueue.spark.pipeline.report.reading import read_columns
from localqueue.spark.pipeline.report.series import Series
from localqueue.spark.pipeline.report.window import Window
from localqueue.spark.pipeline.table import Table

Levels = Mapping[tuple[str, str], float]
"""The messages that wait, by store and queue."""


def levels_before(minutes: Table, moment: datetime | None) -> Levels:
    """What each queue has in its last minute that begins before this; nothing without a moment."""
    if moment is None:
        return {}
    names = ["store", "queue", "minute", "backlog"]
    rows = read_columns(minutes, names, "minute", until=moment).sort_by("minute")
    last = rows.group_by(["store", "queue"], use_threads=False).aggregate([("backlog", "last")])
    columns = (last[name].to_pylist() for name in ("store", "queue", "backlog_last"))
    return {
        (store, queue): float(level)
        for store, queue, level in zip(*columns, strict=True)
        if level is not None
    }


def whole_minute(moment: datetime | None) -> datetime | None:
    """When its minute began."""
    return None if moment is None else moment.astimezone(UTC).replace(second=0, microsecond=0)


def add_stuck(series: dict[tuple[str, str], Series], levels: Levels, window: Window) -> None:
    """Add the queues of which nothing is known but that messages wait in them."""
    for (store, queue), level in levels.items():
        if level > 0 and (store, queue) not in series:
            one = Series.empty(queue, window)
            one.backlog = np.full(window.spans, level)
            series[store, queue] = one
