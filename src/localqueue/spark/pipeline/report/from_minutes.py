"""Series out of the gold table ``minutes``: a row for each queue and minute, however many lives."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from localqueue.spark.pipeline.report.reading import numbers, read_columns, seconds, words
from localqueue.spark.pipeline.report.series import COUNTS, Series, carried_on
from localqueue.spark.pipeline.report.sketches import Durations, together
from localqueue.spark.pipeline.report.window import Window
from localqueue.spark.pipeline.table import Table

MOMENT = "minute"
_COLUMNS = ("store", "queue", MOMENT, "busy", "workers", "backlog", "wait_sketch", "run_sketch")


def series_of_minutes(
    minutes: Table, window: Window, since: datetime | None, until: datetime | None
) -> dict[tuple[str, str], Series]:
    """A series for each store and queue."""
    rows = read_columns(minutes, [*_COLUMNS, *COUNTS], MOMENT, since, until).sort_by(MOMENT)
    stores, store_names = words(rows["store"])
    queues, queue_names = words(rows["queue"])
    spans = window.index(seconds(rows[MOMENT]))
    columns = {name: numbers(rows[name]) for name in (*COUNTS, "busy", "workers")}
    backlog = numbers(rows["backlog"], float("nan"))
    waits, runs = rows["wait_sketch"], rows["run_sketch"]
    found: dict[tuple[str, str], Series] = {}
    for key in np.unique(stores * len(queue_names) + queues):
        store, queue = divmod(int(key), len(queue_names))
        here = np.flatnonzero((stores == store) & (queues == queue))
        one = Series.empty(str(queue_names[queue]), window)
        at = spans[here]
        for name in COUNTS:
            np.add.at(one.counts[name], at, columns[name][here])
        np.add.at(one.busy, at, columns["busy"][here])
        np.maximum.at(one.workers, at, columns["workers"][here])
        known = here[~np.isnan(backlog[here])]
        # In order of time, so that the last minute of a span stays.
        one.backlog[spans[known]] = backlog[known]
        one.backlog = carried_on(one.backlog)
        one.waits = _durations(waits.take(here).to_pylist(), at, window.spans)
        one.runs = _durations(runs.take(here).to_pylist(), at, window.spans)
        found[str(store_names[store]), one.name] = one
    return found


def _durations(
    sketches: list[bytes | None], spans: np.ndarray[tuple[int], np.dtype[np.int64]], n: int
) -> list[Durations]:
    inside: list[list[bytes | None]] = [[] for _ in range(n)]
    for sketch, span in zip(sketches, spans, strict=True):
        inside[span].append(sketch)
    return [together(each) for each in inside]
