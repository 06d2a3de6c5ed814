"""What a queue did over the spans of a window: an array of numbers for each thing counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from localqueue.spark.pipeline.rates import (
    MISSED_RATE,
    SECONDS,
    UTILISATION,
    Numbers,
    Rate,
    shares,
)
from localqueue.spark.pipeline.report.crowds import NOBODY, Crowd, united
from localqueue.spark.pipeline.report.sketches import NONE, Durations, joined
from localqueue.spark.pipeline.report.slo import Slo
from localqueue.spark.pipeline.report.window import Window
from localqueue.spark.pipeline.slo import burn

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

    def rates(self, rate: Rate) -> Numbers:
        """Of each span; NaN where there is none."""
        return rate.of_spans(self._columns)

    def rate(self, rate: Rate) -> float | None:
        """Of the whole window."""
        return rate.of_all(self._columns)

    @property
    def _columns(self) -> Mapping[str, Numbers]:
        """Under the names that rates know."""
        return {
            **self.counts,
            "busy": self.busy,
            "workers": self.workers,
            "slo_met": self.judged - self.late,
            "slo_missed": self.late,
            SECONDS: np.full(self.window.spans, float(self.window.width)),
        }

    @property
    def utilisation(self) -> float | None:
        """How much of their time workers had a message in hand; None when there were none."""
        return self.rate(UTILISATION)

    @property
    def wait(self) -> Durations:
        return joined(self.waits)

    @property
    def run(self) -> Durations:
        return joined(self.runs)

    def burns(self, slo: Slo) -> tuple[Numbers, Numbers]:
        """How fast the budgets of waiting and of losing are used up; NaN where nothing ended."""
        losing = shares(self.lost, self.ended)
        return burn(self.rates(MISSED_RATE), slo.target), burn(losing, slo.target)

    @property
    def in_time(self) -> float | None:
        """The share that did not wait too long."""
        return _kept(self.late.sum(), self.judged.sum())

    @property
    def succeeded(self) -> float | None:
        """The share of lives that were not lost."""
        return _kept(self.lost.sum(), self.ended.sum())


def carried_on(values: Iterable[float], start: float = float("nan")) -> Numbers:
    """Each NaN as the number before it, the first ones as the start."""
    last, found = start, list[float]()
    for value in values:
        last = last if np.isnan(value) else value
        found.append(last)
    return np.array(found, np.float64)


def _kept(part: float, whole: float) -> float | None:
    return None if not whole else max(0.0, 1 - part / whole)
