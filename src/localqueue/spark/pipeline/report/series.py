"""What a queue did over the spans of a window: an array of numbers for each thing counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from localqueue.spark.pipeline.report.sketches import NONE, Durations, joined
from localqueue.spark.pipeline.report.slo import Slo
from localqueue.spark.pipeline.report.window import Window

Numbers = npt.NDArray[np.float64]

COUNTS = (
    "enqueued",
    "leased",
    "acked",
    "released",
    "lease_expired",
    "dead_lettered",
    "quarantined",
    "requeued",
    "expired",
    "cancelled",
    "dropped",
    "purged",
    "attempts",
    "failures",
)
"""What is counted: kinds of events, leases that ended, and those of them that failed."""

UNWANTED = ("dead_lettered", "quarantined", "expired", "dropped")
"""Ends of a life that nobody wished for."""


@dataclass(slots=True)
class Series:
    """One queue, or all of them together. Arrays have one number for each span of the window."""

    name: str
    window: Window
    counts: dict[str, Numbers]
    busy: Numbers
    """Seconds that handlers ran."""
    workers: Numbers
    """How many different workers there were, at most."""
    backlog: Numbers
    """Messages that wait, at the end of the span; NaN before anything is known."""
    waits: list[Durations] = field(default_factory=list)
    runs: list[Durations] = field(default_factory=list)

    @classmethod
    def empty(cls, name: str, window: Window) -> Series:
        zeros = np.zeros(window.spans)
        return cls(
            name,
            window,
            {count: zeros.copy() for count in COUNTS},
            busy=zeros.copy(),
            workers=zeros.copy(),
            backlog=np.full(window.spans, np.nan),
            waits=[NONE] * window.spans,
            runs=[NONE] * window.spans,
        )

    @classmethod
    def together(cls, name: str, window: Window, several: Sequence[Series]) -> Series:
        """All of them as one: what is counted is added up."""
        whole = cls.empty(name, window)
        for each in several:
            for count in COUNTS:
                whole.counts[count] += each.counts[count]
            whole.busy += each.busy
            # A worker may take from several queues; who counts it once for each is wrong upwards.
            whole.workers = np.maximum(whole.workers, each.workers)
            known = ~np.isnan(each.backlog)
            whole.backlog[known] = np.nan_to_num(whole.backlog[known]) + each.backlog[known]
        for span in range(window.spans):
            whole.waits[span] = joined(each.waits[span] for each in several)
            whole.runs[span] = joined(each.runs[span] for each in several)
        return whole

    # --- what follows from the counts -------------------------------------------------------------
    def sum(self, *counts: str) -> int:
        return int(sum(self.counts[count].sum() for count in counts))

    @property
    def ended(self) -> Numbers:
        """Lives that ended well or unwanted; not what an operator took out."""
        return self._added("acked", *UNWANTED)

    @property
    def lost(self) -> Numbers:
        return self._added(*UNWANTED)

    @property
    def retried(self) -> Numbers:
        return self._added("released", "lease_expired")

    @property
    def wait(self) -> Durations:
        return joined(self.waits)

    @property
    def run(self) -> Durations:
        return joined(self.runs)

    def late(self, slo: Slo) -> Numbers:
        return np.array([each.longer_than(slo.wait) for each in self.waits], np.float64)

    def waited(self) -> Numbers:
        """How many deliveries are known to have waited."""
        return np.array([each.count for each in self.waits], np.float64)

    def burns(self, slo: Slo) -> tuple[Numbers, Numbers]:
        """How fast the budgets of waiting and of failing are used up; NaN where nothing ended."""
        waiting = shares(self.late(slo), self.waited()) / slo.budget
        failing = shares(self.lost, self.ended) / slo.budget
        return waiting, failing

    def kept(self, slo: Slo) -> tuple[float | None, float | None]:
        """The shares that were in time, and that succeeded, over the whole window."""
        return (
            _kept(self.late(slo).sum(), self.waited().sum()),
            _kept(self.lost.sum(), self.ended.sum()),
        )

    def _added(self, *counts: str) -> Numbers:
        return np.sum([self.counts[count] for count in counts], axis=0, dtype=np.float64)


def shares(part: Numbers, whole: Numbers) -> Numbers:
    """Part by whole, at most 1; NaN where the whole is nothing."""
    found = np.full(len(part), np.nan)
    np.divide(part, whole, out=found, where=whole > 0)
    return np.minimum(found, 1.0)


def carried_on(values: Iterable[float]) -> Numbers:
    """Each NaN as the number before it."""
    last, found = float("nan"), []
    for value in values:
        last = last if np.isnan(value) else value
        found.append(last)
    return np.array(found, np.float64)


def _kept(part: float, whole: float) -> float | None:
    return None if not whole else max(0.0, 1 - part / whole)
