"""Counts and durations of one process, kept by a listener and read when somebody asks."""

from __future__ import annotations

import os
import threading
import weakref
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from localqueue.message import QueueStats
from localqueue.telemetry.events import (
    Acked,
    Crashed,
    DeadLettered,
    Event,
    HandlerEnded,
    HandlerStarted,
    Leased,
    Released,
    Retried,
)
from localqueue.telemetry.measured import MeasuredQueue, MeasuredQueues
from localqueue.telemetry.names import HANDLER, RUN, WAIT, Metric

BOUNDS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
)  # fmt: skip
"""The upper bounds of the histograms' buckets, in seconds; one more bucket has none."""


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """How many durations there were, up to each bound, and their sum."""

    buckets: tuple[tuple[float, int], ...]
    """Upper bound, and how many were at most that long; the last bound is infinite."""
    count: int
    sum: float


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """What is known of one queue."""

    events: Mapping[str, int]
    """How many there were of each kind of event."""
    errors: Mapping[tuple[str, str], int]
    """Retried, dead-lettered and crashed messages by kind of event and type of error."""
    wait: HistogramSnapshot
    """From when a message could be delivered until it was."""
    run: HistogramSnapshot
    """From the lease to its settlement."""
    handler: HistogramSnapshot
    """From the start of a handler to its end."""
    running: int
    """Handlers that have started and not ended."""
    stats: QueueStats | None
    """What the queue holds now, as its store says; None for a queue that was not added."""


class Metrics:
    """A listener that counts, for any number of queues.

    ``Metrics([queue, ...])`` listens to these queues, and asks them for their stats in each
    ``snapshot``. As ``listeners=[metrics]`` it counts events alone. Events are those of this
    process; what a store holds is the same for all.
    """

    def __init__(self, queues: Iterable[MeasuredQueue] = ()) -> None:
        self._queues = MeasuredQueues()
        self._counts: dict[str, _Counts] = {}
        self.renew_locks()
        _everywhere.add(self)
        for queue in queues:
            self.add(queue)

    def add(self, queue: MeasuredQueue) -> Callable[[], None]:
        """Listen to this queue and ask it for its stats; returns how to stop that."""
        return self._queues.add(queue, self)

    def __call__(self, event: Event) -> None:
        with self._lock:
            counts = self._counts.get(event.queue)
            if counts is None:
                counts = self._counts[event.queue] = _Counts()
            counts.add(event)

    def snapshot(self) -> dict[str, QueueMetrics]:
        """Everything that is known now, by the names of the queues."""
        stats = self._queues.stats()
        with self._lock:
            return {
                name: self._counts.get(name, _Counts()).snapshot(stats.get(name))
                for name in self._counts | stats
            }

    def renew_locks(self) -> None:
        """In a forked child: whoever held it did not come along."""
        # Reentrant: a signal handler or a finalizer may use a queue while this thread counts.
        self._lock = threading.RLock()


def duration_of(event: Event) -> tuple[Metric, float] | None:
    """Which histogram the event belongs to, and how long it took."""
    match event:
        case Leased(waited=float(seconds)):
            return WAIT, seconds
        case (
            Acked(ran=float(seconds))
            | Released(ran=float(seconds))
            | Retried(ran=float(seconds))
            | DeadLettered(ran=float(seconds))
            | Crashed(ran=float(seconds))
        ):
            return RUN, seconds
        case HandlerEnded(took=seconds):
            return HANDLER, seconds
    return None


def error_of(event: Event) -> str | None:
    """The type of the error that ended a delivery; "none" when no type is known."""
    if isinstance(event, (Retried, DeadLettered, Crashed)):
        return event.error_type or "none"
    return None


class _Histogram:
    __slots__ = ("_counts", "_sum")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self._sum += seconds

    def snapshot(self) -> HistogramSnapshot:
        total, buckets = 0, []
        for bound, count in zip((*BOUNDS, float("inf")), self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        return HistogramSnapshot(tuple(buckets), total, self._sum)


@dataclass(slots=True)
class _Counts:
    events: Counter[str] = field(default_factory=Counter)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    durations: dict[Metric, _Histogram] = field(
        default_factory=lambda: {metric: _Histogram() for metric in (WAIT, RUN, HANDLER)}
    )
    running: int = 0

    def add(self, event: Event) -> None:
        self.events[event.kind] += 1
        if (duration := duration_of(event)) is not None:
            metric, seconds = duration
            self.durations[metric].add(seconds)
        if (error_type := error_of(event)) is not None:
            self.errors[event.kind, error_type] += 1
        if isinstance(event, HandlerStarted):
            self.running += 1
        elif isinstance(event, HandlerEnded):
            # One that began before anybody listened is not among the running.
            self.running = max(0, self.running - 1)

    def snapshot(self, stats: QueueStats | None) -> QueueMetrics:
        wait, run, handler = (self.durations[metric].snapshot() for metric in (WAIT, RUN, HANDLER))
        return QueueMetrics(
            dict(self.events), dict(self.errors), wait, run, handler, self.running, stats
        )


_everywhere: weakref.WeakSet[Metrics] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for metrics in list(_everywhere):
        metrics.renew_locks()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
