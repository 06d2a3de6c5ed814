"""The charts and the key figures of one queue, or of all of them together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from localqueue.spark.pipeline.rates import (
    DEAD_LETTER_RATE,
    FAILURE_RATE,
    RETRY_RATE,
    UTILISATION,
    Numbers,
)
from localqueue.spark.pipeline.report import units
from localqueue.spark.pipeline.report.charts import Chart, Curve
from localqueue.spark.pipeline.report.series import Series
from localqueue.spark.pipeline.report.sketches import Durations
from localqueue.spark.pipeline.report.slo import Slo

RANKS = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that is looked at first."""

    name: str
    value: str
    beside: str
    mood: str = ""
    """``good`` or ``bad`` where that can be said."""


def charts_of(one: Series, slo: Slo) -> list[Chart]:
    width = one.window.width
    waiting, losing = one.burns(slo)
    put, finished = one.counts["enqueued"] / width, one.counts["acked"] / width
    factor, per = units.rate_unit(float(max(put.max(), finished.max())))
    return [
        Chart(
            "Throughput",
            "Messages put and messages finished.",
            per,
            [
                Curve("put", put * factor, "blue"),
                Curve("finished", finished * factor, "green", filled=True),
            ],
        ),
        Chart(
            "Backlog",
            "Messages that wait, at the end of each span.",
            units.COUNT,
            [Curve("", one.backlog, "violet", filled=True)],
        ),
        Chart(
            "Waiting time",
            "From the put, or the last release, to the lease.",
            units.DURATION,
            _quantiles(one.waits),
        ),
        Chart(
            "Running time",
            "From the lease to its end: also while it is leased ahead, behind others.",
            units.DURATION,
            _quantiles(one.runs),
        ),
        Chart(
            "Failures",
            "Attempts that failed or are tried again, and lives that ended as dead letters.",
            units.PERCENT,
            [
                Curve("failed", one.rates(FAILURE_RATE), "amber", filled=True),
                Curve("tried again", one.rates(RETRY_RATE), "blue", dashed=True),
                Curve("dead letters", one.rates(DEAD_LETTER_RATE), "red"),
            ],
        ),
        Chart(
            "Workers",
            "Messages in their hands on average, and different workers that were seen.",
            units.COUNT,
            [
                Curve("workers", one.workers, "grey"),
                Curve("in hand", one.busy / width, "green", filled=True),
            ],
        ),
        Chart(
            "Utilisation",
            "How much of their time workers had a message in hand.",
            units.PERCENT,
            [Curve("", one.rates(UTILISATION), "blue", filled=True)],
        ),
        Chart(
            "SLO burn",
            f"How fast the error budget is used up, if {units.percent(slo.target)} should be in"
            " time and not be lost. Above the line it does not last.",
            units.TIMES,
            [
                Curve("too late", waiting, "amber"),
                Curve("lost", losing, "red"),
            ],
            limit=1.0,
        ),
    ]


def tiles_of(one: Series, slo: Slo) -> list[Tile]:
    finished, attempts, failures = one.sum("acked"), one.sum("attempts"), one.sum("failures")
    length = one.window.spans * one.window.width
    wait, run = one.wait.quantiles(RANKS), one.run.quantiles(RANKS)
    dead = one.sum("died")
    return [
        Tile(
            "finished",
            units.count(finished),
            f"{units.rate(finished / length)}, at most"
            f" {units.rate(float(one.counts['acked'].max()) / one.window.width)}",
        ),
        Tile("wait p95", units.duration(wait[1]), _others(wait)),
        Tile("run p95", units.duration(run[1]), _others(run)),
        Tile(
            "failed",
            units.percent(one.rate(FAILURE_RATE)),
            f"{units.count(failures)} of {units.count(attempts)} attempts",
        ),
        Tile(
            "dead letters",
            units.count(dead),
            f"{units.count(one.sum('requeued'))} put back",
            "bad" if dead else "good",
        ),
        Tile(
            "backlog", units.count(_last(one.backlog)), f"at most {units.count(_most(one.backlog))}"
        ),
        Tile("busy", units.percent(one.utilisation), "of the workers' time"),
        _kept_tile("in time", one.in_time, slo, "did not wait too long"),
        _kept_tile("without loss", one.succeeded, slo, "of all lives"),
    ]


def _kept_tile(name: str, share: float | None, slo: Slo, about: str) -> Tile:
    mood = "" if share is None else "good" if share >= slo.target else "bad"
    return Tile(name, units.percent(share), f"{about} (goal {units.percent(slo.target)})", mood)


def _quantiles(spans: list[Durations]) -> list[Curve]:
    table = [each.quantiles(RANKS) for each in spans]
    tones = ("green", "blue", "violet")
    return [
        Curve(f"p{rank * 100:.0f}", _floats([row[n] for row in table]), tone)
        for n, (rank, tone) in enumerate(zip(RANKS, tones, strict=True))
    ][::-1]


def _floats(values: list[float | None]) -> Numbers:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _others(quantiles: tuple[float | None, ...]) -> str:
    return f"p50 {units.duration(quantiles[0])}, p99 {units.duration(quantiles[2])}"


def _last(values: Numbers) -> float | None:
    return float(values[-1]) if len(values) else None


def _most(values: Numbers) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else None
