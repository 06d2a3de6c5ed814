"""Series out of the bronze table ``events``, for a time so short that minutes are too coarse."""

from __future__ import annotations

import json
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from localqueue.spark.pipeline.report.reading import numbers, read_columns, seconds, words
from localqueue.spark.pipeline.report.series import Numbers, Series, carried_on
from localqueue.spark.pipeline.report.sketches import Durations, exact
from localqueue.spark.pipeline.report.window import Window
from localqueue.spark.pipeline.table import Table

MOMENT = "at"
WAITING = ("ready", "delayed", "held")
_COLUMNS = (
    *("store", "shard", "seq", "queue", MOMENT, "kind", "from_state", "to_state", "n"),
    *("error_type", "leased_at", "waited", "ran", "worker", "detail"),
)
Mask = npt.NDArray[np.bool_]


def series_of_events(
    events: Table, window: Window, since: datetime | None, until: datetime | None
) -> dict[tuple[str, str], Series]:
    """A series for each store and queue."""
    rows = read_columns(events, _COLUMNS, MOMENT, since, until)
    found: dict[tuple[str, str], Series] = {}
    for store in pc.unique(rows["store"]).to_pylist():
        for queue in pc.unique(rows["queue"]).to_pylist():
            here = pc.and_(pc.equal(rows["store"], store), pc.equal(rows["queue"], queue))
            some = rows.filter(here)
            if some.num_rows:
                # Of one shard the order is that of its journal; times may be equal.
                ordered = some.sort_by([("shard", "ascending"), ("seq", "ascending")])
                found[store, queue] = _series(queue, window, ordered)
    return found


def _series(name: str, window: Window, rows: pa.Table) -> Series:
    one = Series.empty(name, window)
    at, n = seconds(rows[MOMENT]), numbers(rows["n"], 1.0)
    spans = window.index(at)
    kind, kinds = words(rows["kind"])
    for number, text in enumerate(kinds):
        if text in one.counts:
            one.counts[text] = _sums(spans, n, kind == number, window)
    left, entered = _states(rows["from_state"]), _states(rows["to_state"])
    ended = (left == "inflight") & (entered != "inflight")
    failed = np.asarray(pc.is_valid(rows["error_type"]).to_numpy(), np.bool_)
    failed |= np.isin(kind, [kinds.index(k) for k in ("lease_expired",) if k in kinds])
    one.counts["attempts"] = _sums(spans, n, ended, window)
    one.counts["failures"] = _sums(spans, n, ended & failed, window)
    one.waits = _durations(spans, numbers(rows["waited"], float("nan")), ended, window)
    one.runs = _durations(spans, numbers(rows["ran"], float("nan")), ended, window)
    leased_at = seconds(rows["leased_at"])
    ran = ended & ~np.isnan(leased_at)
    one.busy = _busy(leased_at[ran], at[ran], window)
    one.workers = _distinct(spans, words(rows["worker"]), window)
    one.backlog = _backlog(rows, spans, n, left, entered, window)
    return one


def _states(column: pa.ChunkedArray) -> npt.NDArray[np.object_]:
    numbered, names = words(column)
    return np.array([name or "" for name in names], np.object_)[numbered]


def _sums(spans: npt.NDArray[np.int64], n: Numbers, chosen: Mask, window: Window) -> Numbers:
    return np.bincount(spans[chosen], n[chosen], window.spans)


def _durations(
    spans: npt.NDArray[np.int64], values: Numbers, ended: Mask, window: Window
) -> list[Durations]:
    known = ended & ~np.isnan(values)
    order = np.argsort(spans[known], kind="stable")
    edges = np.searchsorted(spans[known][order], np.arange(window.spans + 1))
    ordered = values[known][order]
    return [exact(ordered[edges[n] : edges[n + 1]]) for n in range(window.spans)]


def _busy(starts: Numbers, ends: Numbers, window: Window) -> Numbers:
    """Seconds of work in each span. A run that crosses spans is in each of them, with its part."""
    return np.diff(_spent(np.sort(starts), window.edges) - _spent(np.sort(ends), window.edges))


def _spent(moments: Numbers, edges: Numbers) -> Numbers:
    """For each edge the time since all moments before it, added up."""
    before = np.searchsorted(moments, edges)
    sums = np.concatenate([[0.0], np.cumsum(moments)])
    return before * edges - sums[before]


def _distinct(
    spans: npt.NDArray[np.int64], workers: tuple[npt.NDArray[np.int64], list[str | None]],
    window: Window,
) -> Numbers:  # fmt: skip
    numbered, names = workers
    nobody = names.index(None) if None in names else -1
    pairs = np.unique(spans[numbered != nobody] * len(names) + numbered[numbered != nobody])
    return np.bincount(pairs // max(len(names), 1), minlength=window.spans).astype(np.float64)


def _backlog(
    rows: pa.Table,
    spans: npt.NDArray[np.int64],
    n: Numbers,
    left: npt.NDArray[np.object_],
    entered: npt.NDArray[np.object_],
    window: Window,
) -> Numbers:
    """How many messages wait at the end of each span.

    What the events add and take, from the number that a ``counted`` event knows, if there is one;
    otherwise from nothing, as at the beginning of a journal.
    """
    change = n * (np.isin(entered, WAITING).astype(int) - np.isin(left, WAITING).astype(int))
    waiting = np.cumsum(change)
    known = pc.equal(rows["kind"], "counted").to_numpy()
    for index in np.flatnonzero(known)[:1]:
        counted = json.loads(rows["detail"][int(index)].as_py() or "{}")
        waiting += sum(counted.get(state, 0) for state in WAITING) - waiting[index]
    # Without any count the journal may have begun before the window: nothing is below zero.
    waiting -= min(0.0, float(waiting.min(initial=0.0)))
    found = np.full(window.spans, np.nan)
    found[spans] = waiting
    return carried_on(found)


