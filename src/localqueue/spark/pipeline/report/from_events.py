"""Series out of the bronze table ``events``, for a time so short that minutes are too coarse.

What is counted is what ``minutes`` counts; see there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from localqueue.spark.pipeline.minutes import UNNAMED
from localqueue.spark.pipeline.rates import Numbers
from localqueue.spark.pipeline.report.crowds import Crowd
from localqueue.spark.pipeline.report.levels import Levels, add_stuck, whole_minute
from localqueue.spark.pipeline.report.reading import (
    Words,
    numbers,
    read_columns,
    seconds,
    words,
)
from localqueue.spark.pipeline.report.series import Series, carried_on
from localqueue.spark.pipeline.report.sketches import Durations, exact
from localqueue.spark.pipeline.report.slo import Slo
from localqueue.spark.pipeline.report.window import Window
from localqueue.spark.pipeline.shapes import FAILURES, WAITING
from localqueue.spark.pipeline.slo import TAKEN_BACK
from localqueue.spark.pipeline.table import Table

MOMENT = "at"
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
    levels: Levels,
    since: datetime | None,
    until: datetime | None,
) -> dict[tuple[str, str], Series]:
    """A series for each store and queue.

    As of minutes: a queue of ``limits`` is judged by its limit, life by life, and the deliveries of
    others by the limit of the report. ``levels`` are what waited when the minute of ``since``
    began.
    """
    rows = _Rows.of(read_columns(events, _COLUMNS, MOMENT, whole_minute(since), until))
    found: dict[tuple[str, str], Series] = {}
    still = dict(levels)
    for store, queue, some in rows.by_queue():
        backlog = _backlog(some, window, still.pop((store, queue), None))
        inside = some if since is None else some.since(since.timestamp())
        if inside.at.size:
            one = _series(queue, window, inside, limits.get(queue), slo.wait)
            one.backlog = backlog
            found[store, queue] = one
        else:
            still[store, queue] = float(backlog[-1])
    add_stuck(found, still, window)
    return found


@dataclass(frozen=True, slots=True)
class _Rows:
    """Columns of events, as arrays."""

    store: Words
    queue: Words
    order: npt.NDArray[np.int64]
    """In the order of the journals: by shard and seq. Times may be equal."""
    at: Numbers
    kind: Words
    left: Words
    entered: Words
    n: Numbers
    has_error: Mask
    leased_at: Numbers
    waited: Numbers
    ran: Numbers
    worker: Words
    counted: Numbers
    """What waited, as the store had counted it; NaN where the event is no count."""

    @classmethod
    def of(cls, rows: pa.Table) -> _Rows:
        unknown = float("nan")
        seq, shard = numbers(rows["seq"]), words(rows["shard"])
        return cls(
            store=words(rows["store"]),
            queue=words(rows["queue"]),
            order=np.lexsort((seq, shard.numbers)),
            at=seconds(rows[MOMENT]),
            kind=words(rows["kind"]),
            left=words(rows["from_state"]),
            entered=words(rows["to_state"]),
            n=numbers(rows["n"], 1.0),
            has_error=np.asarray(pc.is_valid(rows["error_type"]), np.bool_),
            leased_at=seconds(rows["leased_at"]),
            waited=numbers(rows["waited"], unknown),
            ran=numbers(rows["ran"], unknown),
            worker=words(rows["worker"]),
            counted=_counted(rows),
        )

    def by_queue(self) -> Iterator[tuple[str, str, _Rows]]:
        """The rows of each store and queue, in order."""
        keys = (self.store.numbers * len(self.queue.texts) + self.queue.numbers)[self.order]
        grouped = np.argsort(keys, kind="stable")
        found, firsts = np.unique(keys[grouped], return_index=True)
        for key, first, last in zip(found, firsts, [*firsts[1:], len(keys)], strict=True):
            store, queue = divmod(int(key), len(self.queue.texts))
            some = self._some(self.order[grouped[first:last]])
            yield str(self.store.texts[store]), str(self.queue.texts[queue]), some

    def since(self, moment: float) -> _Rows:
        """The rows from this moment on."""
        return self._some(np.flatnonzero(self.at >= moment))

    def _some(self, chosen: npt.NDArray[np.int64]) -> _Rows:
        return _Rows(**{name: getattr(self, name)[chosen] for name in self.__slots__})


def _counted(rows: pa.Table) -> Numbers:
    found = np.full(rows.num_rows, np.nan)
    for index in np.flatnonzero(np.asarray(pc.fill_null(pc.equal(rows["kind"], "counted"), False))):
        counts = json.loads(rows["detail"][int(index)].as_py() or "null")
        if counts is not None:
            found[index] = sum(counts.get(state, 0) for state in WAITING)
    return found


def _series(name: str, window: Window, rows: _Rows, limit: float | None, wait: float) -> Series:
    one = Series.empty(name, window)
    spans, kind, entered = window.index(rows.at), rows.kind, rows.entered
    ended = rows.left.among("inflight") & ~entered.among("inflight")
    failed = ended & (kind.among(*FAILURES) | rows.has_error)
    lives = _ends_a_life(kind, rows.left, entered)
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
        one.counts[count] = _sums(spans, rows.n, which, window)
    if limit is None:
        judged, late = ended & ~np.isnan(rows.waited), ended & (rows.waited > wait)
    else:
        judged = lives & (ended | ~kind.among(*TAKEN_BACK))
        late = judged & ~(ended & (rows.waited <= limit))
    one.judged = _sums(spans, rows.n, judged, window)
    one.late = _sums(spans, rows.n, late, window)
    one.waits = _durations(spans, rows.waited, ended, window)
    one.runs = _durations(spans, rows.ran, ended, window)
    ran = ended & ~np.isnan(rows.leased_at)
    began, end = _spent(rows.leased_at[ran], window.edges), _spent(rows.at[ran], window.edges)
    one.busy = np.diff(began - end)
    one.crowds = _crowds(rows, window)
    one.count_workers()
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


def _crowds(rows: _Rows, window: Window) -> list[Crowd]:
    """A worker is there from its first event to its last; those without a name are one."""
    texts = rows.worker.texts
    first, last = np.full(len(texts), np.inf), np.full(len(texts), -np.inf)
    held = rows.left.among("inflight") | rows.entered.among("inflight")
    np.minimum.at(first, rows.worker.numbers[held], np.fmin(rows.at, rows.leased_at)[held])
    np.maximum.at(last, rows.worker.numbers[held], rows.at[held])
    found: list[set[int | str]] = [set() for _ in range(window.spans)]
    for name, came, went in zip(texts, first, last, strict=True):
        if came <= went:
            begin, end = window.index(np.array([came, went]))
            for span in range(begin, end + 1):
                found[span].add(UNNAMED if name is None else name)
    return [frozenset(crowd) for crowd in found]


def _backlog(rows: _Rows, window: Window, level: float | None) -> Numbers:
    """How many messages wait at the end of each span.

    What the events add and take, from the number that a ``counted`` event knows, if there is one;
    otherwise from the level before them, and where none is known from nothing, as at the beginning
    of a journal.
    """
    entering, leaving = rows.entered.among(*WAITING), rows.left.among(*WAITING)
    waiting = np.cumsum(rows.n * (entering.astype(int) - leaving.astype(int))) + (level or 0.0)
    for index in np.flatnonzero(~np.isnan(rows.counted))[-1:]:
        waiting += rows.counted[index] - waiting[index]
    # Without any count the journal may have begun before the window: nothing is below zero.
    waiting -= min(0.0, float(waiting.min(initial=0.0)))
    found = np.full(window.spans, np.nan)
    # In order of time, so that the last event of a span stays.
    found[window.index(rows.at)] = waiting
    return carried_on(found, float("nan") if level is None else level)
