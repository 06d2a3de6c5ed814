"""Series out of the gold table ``minutes``: a row for each queue and minute, however many lives."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from localqueue.spark.pipeline.report.crowds import crowd_of
from localqueue.spark.pipeline.report.levels import Levels, add_stuck
from localqueue.spark.pipeline.report.reading import numbers, read_columns, seconds, words
from localqueue.spark.pipeline.report.series import COUNTS, Series, carried_on
from localqueue.spark.pipeline.report.sketches import Durations, together
from localqueue.spark.pipeline.report.slo import Slo
from localqueue.spark.pipeline.report.window import Window
from localqueue.spark.pipeline.table import Table

MOMENT = "minute"
_NUMBERS = (*COUNTS, "busy", "workers", "slo_met", "slo_missed")
_OTHERS = ("store", "queue", MOMENT, "backlog", "wait_sketch", "run_sketch", "worker_sketch")


def series_of_minutes(
    minutes: Table,
    window: Window,
    slo: Slo,
    levels: Levels,
    since: datetime | None,
    until: datetime | None,
) -> dict[tuple[str, str], Series]:
    """A series for each store and queue. ``levels`` are what waited before.

    A queue for which the pipeline knows a limit is judged by it, life by life. The deliveries of
    others are judged by the limit of the report.
    """
    rows = read_columns(minutes, [*_NUMBERS, *_OTHERS], MOMENT, since, until).sort_by(MOMENT)
    stores, queues = words(rows["store"]), words(rows["queue"])
    spans = window.index(seconds(rows[MOMENT]))
    columns = {name: numbers(rows[name]) for name in _NUMBERS}
    backlog = numbers(rows["backlog"], float("nan"))
    waits, runs, workers = rows["wait_sketch"], rows["run_sketch"], rows["worker_sketch"]
    found: dict[tuple[str, str], Series] = {}
    keys = stores.numbers * len(queues.texts) + queues.numbers
    for key in np.unique(keys):
        store, queue = divmod(int(key), len(queues.texts))
        here = np.flatnonzero(keys == key)
        one = Series.empty(str(queues.texts[queue]), window)
        at = spans[here]
        for name in COUNTS:
            np.add.at(one.counts[name], at, columns[name][here])
        np.add.at(one.busy, at, columns["busy"][here])
        np.maximum.at(one.workers, at, columns["workers"][here])
        known = here[~np.isnan(backlog[here])]
        # In order of time, so that the last minute of a span stays.
        one.backlog[spans[known]] = backlog[known]
        start = levels.get((str(stores.texts[store]), one.name), float("nan"))
        one.backlog = carried_on(one.backlog, start)
        one.waits = _durations(waits.take(here).to_pylist(), at, window.spans)
        one.runs = _durations(runs.take(here).to_pylist(), at, window.spans)
        for span, sketch in zip(at, workers.take(here).to_pylist(), strict=True):
            one.crowds[span] |= crowd_of(sketch)
        one.count_workers()
        if columns["slo_met"][here].any() or columns["slo_missed"][here].any():
            np.add.at(one.late, at, columns["slo_missed"][here])
            np.add.at(one.judged, at, (columns["slo_met"] + columns["slo_missed"])[here])
        else:
            one.late = np.array([float(each.longer_than(slo.wait)) for each in one.waits])
            one.judged = np.array([float(each.count) for each in one.waits])
        found[str(stores.texts[store]), one.name] = one
    add_stuck(found, levels, window)
    return found


def _durations(
    sketches: list[bytes | None], spans: np.ndarray[tuple[int], np.dtype[np.int64]], n: int
) -> list[Durations]:
    inside: list[list[bytes | None]] = [[] for _ in range(n)]
    for sketch, span in zip(sketches, spans, strict=True):
        inside[span].append(sketch)
    return [together(each) for each in inside]


def limits_of(minutes: Table) -> dict[str, float]:
    """How long messages of a queue may wait, as the pipeline was told; by queue."""
    rows = read_columns(minutes, ["queue", MOMENT, "slo_limit"], MOMENT).sort_by(MOMENT)
    pairs = zip(rows["queue"].to_pylist(), rows["slo_limit"].to_pylist(), strict=True)
    return {queue: limit for queue, limit in pairs if limit is not None}
