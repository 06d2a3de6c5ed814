"""What a queue did over the spans of a window: an array of numbers for each thing counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from localqueue.spark.pipeline.report.crowds import NOBODY, Crowd, united
from localqueue.spark.pipeline.report.sketches import NONE, Durations, joined
from localqueue.spark.pipeline.report.slo import Slo
from localqueue.spark.pipeline.report.window import Window

Numbers = npt.NDArray[np.float64]

COUNTS = (
    "enqueued",
    "leased",
    "acked",
    "requeued",
    "expired",
    "dropped",
    "attempts",
    "failures",
    "retries",
    "died",
    "lives",
)
"""What is counted, as the columns of ``minutes`` are called."""


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
    judged: Numbers
    """How many had a limit for their waiting time, and were leased or should have been."""
    late: Numbers
    """How many of these waited longer."""
    crowds: list[Crowd] = field(default_factory=list)
    """The workers of each span, as far as they are told apart."""
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
            judged=zeros.copy(),
            late=zeros.copy(),
            waits=[NONE] * window.spans,
            runs=[NONE] * window.spans,
            crowds=[NOBODY] * window.spans,
        )

    @classmethod
    def together(cls, name: str, window: Window, several: Sequence[Series]) -> Series:
        """All of them as one: what is counted is added up."""
        whole = cls.empty(name, window)
        for each in several:
            for count in COUNTS:
                whole.counts[count] += each.counts[count]
            whole.busy += each.busy
            whole.judged += each.judged
            whole.late += each.late
            # A worker may take from several queues: not the sum.
            whole.workers = np.maximum(whole.workers, each.workers)
            known = ~np.isnan(each.backlog)
            whole.backlog[known] = np.nan_to_num(whole.backlog[known]) + each.backlog[known]
        for span in range(window.spans):
            whole.waits[span] = joined(each.waits[span] for each in several)
            whole.runs[span] = joined(each.runs[span] for each in several)
            whole.crowds[span] = united(each.crowds[span] for each in several)
        whole.count_workers()
        return whole

    def count_workers(self) -> None:
        """Those that are told apart, unless more are known of."""
        told_apart = np.array([len(crowd) for crowd in self.crowds], np.float64)
        self.workers = np.maximum(self.workers, told_apart)

    # --- what follows from the counts -------------------------------------------------------------
    def sum(self, *counts: str) -> int:
        return int(sum(self.counts[count].sum() for count in counts))

    @property
    def lost(self) -> Numbers:
        """Lives that ended as nobody wished: dead letters, expired, let go by a full queue."""
        unwanted = self.counts["died"] + self.counts["expired"] + self.counts["dropped"]
        # What expires into the dead letters is one life, and has been counted as both.
        return np.minimum(unwanted, np.maximum(self.counts["lives"] - self.counts["acked"], 0))

    @property
    def ended(self) -> Numbers:
        """Lives that ended well or were lost; not what somebody cancelled or purged."""
        return self.counts["acked"] + self.lost

    @property
    def utilisation(self) -> float | None:
        """How much of their time workers had a message in hand; None when there were none."""
        there = self.workers * self.window.width
        # In no span more than all of it: what they have leased ahead is in their hands too.
        busy = np.minimum(self.busy, there)
        return float(busy.sum() / there.sum()) if there.any() else None

    @property
    def wait(self) -> Durations:
        return joined(self.waits)

    @property
    def run(self) -> Durations:
        return joined(self.runs)

    def burns(self, slo: Slo) -> tuple[Numbers, Numbers]:
        """How fast the budgets of waiting and of losing are used up; NaN where nothing ended."""
        waiting = shares(self.late, self.judged) / slo.budget
        losing = shares(self.lost, self.ended) / slo.budget
        return waiting, losing

    @property
    def in_time(self) -> float | None:
        """The share that did not wait too long."""
        return _kept(self.late.sum(), self.judged.sum())

    @property
    def succeeded(self) -> float | None:
        """The share of lives that were not lost."""
        return _kept(self.lost.sum(), self.ended.sum())


def shares(part: Numbers, whole: Numbers) -> Numbers:
    """Part by whole, at most 1; NaN where the whole is nothing."""
    found = np.full(len(part), np.nan)
    np.divide(part, whole, out=found, where=whole > 0)
    return np.asarray(np.minimum(found, 1.0), np.float64)


def carried_on(values: Iterable[float], start: float = float("nan")) -> Numbers:
    """Each NaN as the number before it, the first ones as the start."""
    last, found = start, list[float]()
    for value in values:
        last = last if np.isnan(value) else value
        found.append(last)
    return np.array(found, np.float64)


def _kept(part: float, whole: float) -> float | None:
    return None if not whole else max(0.0, 1 - part / whole)
