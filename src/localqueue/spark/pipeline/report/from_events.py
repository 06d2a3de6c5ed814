"""Series out of the bronze table ``events``, for a time so short that minutes are too coarse.

What is counted is what ``minutes`` counts; see there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from localqueue.spark.pipeline.report.crowds import Crowd
from localqueue.spark.pipeline.report.reading import (
    Words,
    numbers,
    read_columns,
    seconds,
    words,
)
from localqueue.spark.pipeline.report.series import Numbers, Series, carried_on
from localqueue.spark.pipeline.report.sketches import Durations, exact
from localqueue.spark.pipeline.report.slo import Slo
from localqueue.spark.pipeline.report.window import Window
from localqueue.spark.pipeline.table import Table

MOMENT = "at"
WAITING = ("ready", "delayed", "held")
FAILURES = ("lease_expired", "dead_lettered", "quarantined")
TAKEN_BACK = ("cancelled", "purged")
_COLUMNS = (
    *("store", "shard", "seq", "queue", MOMENT, "kind", "from_state", "to_state", "n"),
    *("error_type", "leased_at", "waited", "ran", "worker", "detail"),
)
Mask = npt.NDArray[np.bool_]
Spans = npt.NDArray[np.int64]


def series_of_events(
    events: Table,
    window: Window,
    slo: Slo,
    limits: Mapping[str, float],
    since: datetime | None,
    until: datetime | None,
) -> dict[tuple[str, str], Series]:
    """A series for each store and queue; ``limits`` are how long its messages may wait."""
    rows = read_columns(events, _COLUMNS, MOMENT, since, until)
    found: dict[tuple[str, str], Series] = {}
    for store in pc.unique(rows["store"]).to_pylist():
        for queue in pc.unique(rows["queue"]).to_pylist():
            here = pc.and_(pc.equal(rows["store"], store), pc.equal(rows["queue"], queue))
            some = rows.filter(here)
            if some.num_rows:
                # Of one shard the order is that of its journal; times may be equal.
                ordered = some.sort_by([("shard", "ascending"), ("seq", "ascending")])
                found[store, queue] = _series(queue, window, ordered, limits.get(queue, slo.wait))
    return found


def _series(name: str, window: Window, rows: pa.Table, limit: float) -> Series:
    one = Series.empty(name, window)
    at, n = seconds(rows[MOMENT]), numbers(rows["n"], 1.0)
    spans = window.index(at)
    kind, left, entered = words(rows["kind"]), words(rows["from_state"]), words(rows["to_state"])
    waited, leased_at = numbers(rows["waited"], float("nan")), seconds(rows["leased_at"])
    ended = left.among("inflight") & ~entered.among("inflight")
    failed = ended & (kind.among(*FAILURES) | np.asarray(pc.is_valid(rows["error_type"])))
    lives = _ends_a_life(kind, left, entered)
    counted: dict[str, Mask] = {
        **{text: kind.among(text) for text in ("enqueued", "leased", "acked", "requeued")},
        **{text: kind.among(text) for text in ("expired", "dropped")},
        "attempts": ended,
        "failures": failed,
        "retries": failed & entered.among(*WAITING),
        "died": entered.among("dead"),
        "lives": lives,
    }
    for count, which in counted.items():
        one.counts[count] = _sums(spans, n, which, window)
    judged = lives & (ended | ~kind.among(*TAKEN_BACK))
    one.judged = _sums(spans, n, judged, window)
    one.late = _sums(spans, n, judged & ~(ended & (waited <= limit)), window)
    one.waits = _durations(spans, waited, ended, window)
    one.runs = _durations(spans, numbers(rows["ran"], float("nan")), ended, window)
    ran = ended & ~np.isnan(leased_at)
    one.busy = np.diff(_spent(leased_at[ran], window.edges) - _spent(at[ran], window.edges))
    one.crowds = _crowds(words(rows["worker"]), np.fmin(at, leased_at), at, window)
    one.count_workers()
    one.backlog = _backlog(rows, spans, n, left, entered, kind, window)
    return one


def _ends_a_life(kind: Words, left: Words, entered: Words) -> Mask:
    """Gone or dead now and alive before; or never alive, because there was no room."""
    died = entered.among("dead")
    ended = left.among(*WAITING, "inflight") & (died | entered.among(None))
    never = left.among(None) & (kind.among("dropped") | (kind.among("enqueued") & died))
    return ended | never


def _sums(spans: Spans, n: Numbers, chosen: Mask, window: Window) -> Numbers:
    return np.bincount(spans[chosen], n[chosen], window.spans).astype(np.float64)


def _durations(spans: Spans, values: Numbers, ended: Mask, window: Window) -> list[Durations]:
    known = ended & ~np.isnan(values)
    order = np.argsort(spans[known], kind="stable")
    edges = np.searchsorted(spans[known][order], np.arange(window.spans + 1))
    ordered = values[known][order]
    return [exact(ordered[edges[n] : edges[n + 1]]) for n in range(window.spans)]


def _spent(moments: Numbers, edges: Numbers) -> Numbers:
    """For each edge the time since all moments before it, added up.

    Of the beginnings of all runs, less the same of their ends, it is the time that was run until
    the edge. So a run that crosses spans is in each of them with its part.
    """
    ordered = np.sort(moments)
    before = np.searchsorted(ordered, edges)
    sums = np.concatenate([[0.0], np.cumsum(ordered - edges[0])])
    return np.asarray(before * (edges - edges[0]) - sums[before], np.float64)


def _crowds(workers: Words, began: Numbers, ended: Numbers, window: Window) -> list[Crowd]:
    """A worker is there from its first event to its last."""
    found: list[set[int | str]] = [set() for _ in range(window.spans)]
    for number, name in enumerate(workers.texts):
        here = workers.numbers == number
        if name is not None and here.any():
            first, last = window.index(np.array([began[here].min(), ended[here].max()]))
            for span in range(first, last + 1):
                found[span].add(name)
    return [frozenset(crowd) for crowd in found]


def _backlog(
    rows: pa.Table,
    spans: Spans,
    n: Numbers,
    left: Words,
    entered: Words,
    kind: Words,
    window: Window,
) -> Numbers:
    """How many messages wait at the end of each span.

    What the events add and take, from the number that a ``counted`` event knows, if there is one;
    otherwise from nothing, as at the beginning of a journal.
    """
    change = n * (entered.among(*WAITING).astype(int) - left.among(*WAITING).astype(int))
    waiting = np.cumsum(change)
    for index in np.flatnonzero(kind.among("counted"))[-1:]:
        counted = json.loads(rows["detail"][int(index)].as_py() or "{}")
        waiting += sum(counted.get(state, 0) for state in WAITING) - waiting[index]
    # Without any count the journal may have begun before the window: nothing is below zero.
    waiting -= min(0.0, float(waiting.min(initial=0.0)))
    found = np.full(window.spans, np.nan)
    # In order of time, so that the last event of a span stays.
    found[spans] = waiting
    return carried_on(found)
