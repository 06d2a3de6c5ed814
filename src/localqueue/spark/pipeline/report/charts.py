"""Charts over time as pieces of HTML.

The curves are SVG that is stretched to whatever room there is; numbers and names are text beside
it, so that they have the same size on a phone and on a desk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

import numpy as np
import numpy.typing as npt

from localqueue.spark.pipeline.rates import Numbers
from localqueue.spark.pipeline.report.scales import Scale, scale_for
from localqueue.spark.pipeline.report.units import Unit
from localqueue.spark.pipeline.report.window import Window

WIDTH, HEIGHT = 1000, 200
FEW = 6
"""With fewer spans than this a curve is drawn as steps: a line through three points says little."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A value for each span, NaN where there is none; ``tone`` is a colour of the style sheet."""

    name: str
    values: Numbers
    tone: str
    filled: bool = False
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    about: str
    """One sentence: what is seen here."""
    unit: Unit
    curves: Sequence[Curve]
    limit: float | None = None
    """A value that should not be passed; drawn as a line."""

    @property
    def is_empty(self) -> bool:
        return all(np.isnan(curve.values).all() for curve in self.curves)

    def html(self, window: Window) -> str:
        caption = (
            f"<figcaption><h3>{escape(self.title)}</h3>{_legend(self.curves)}"
            f"<p>{escape(self.about)}</p></figcaption>"
        )
        if self.is_empty:
            return f'<figure class="chart">{caption}<div class="none">no data</div></figure>'
        everything = np.concatenate([curve.values for curve in self.curves])
        scale = scale_for(self.unit, everything, at_least=self.limit or 0.0)
        return (
            f'<figure class="chart" data-unit="{self.unit.name}"'
            f' data-suffix="{self.unit.suffix}">{caption}'
            f'<div class="plot">{_beside(scale, self.unit)}{self._drawing(window, scale)}'
            f"{_below(window)}</div></figure>"
        )

    def _drawing(self, window: Window, scale: Scale) -> str:
        lines = "".join(f'<path class="grid" d="M0 {_y(y)}H{WIDTH}"/>' for y in _heights(scale))
        if self.limit is not None:
            (height,) = scale.place(np.array([self.limit]))
            lines += f'<path class="limit" d="M0 {_y(height)}H{WIDTH}"/>'
        for curve in self.curves:
            lines += _curve(curve, window, scale)
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img"'
            f' aria-label="{escape(self.title)}">{lines}</svg>'
        )


def spark_line(values: Numbers, tone: str) -> str:
    """A curve without any words, for a cell of a table."""
    top = float(np.nanmax(values)) if len(values) and not np.isnan(values).all() else 0.0
    heights = np.nan_to_num(values) / top if top > 0 else np.zeros(len(values))
    path = _runs(heights, np.linspace(0, WIDTH, len(values) + 1))
    filled = "".join(f"{line}V{HEIGHT}H{first}Z" for line, first, _ in path)
    drawn = "".join(line for line, _, _ in path)
    return (
        f'<svg class="spark" viewBox="0 -8 {WIDTH} {HEIGHT + 16}" preserveAspectRatio="none"'
        f' aria-hidden="true"><path class="area {tone}" d="{filled}"/>'
        f'<path class="line {tone}" d="{drawn}"/></svg>'
    )


# --- curves ---------------------------------------------------------------------------------------
def _curve(curve: Curve, window: Window, scale: Scale) -> str:
    runs = _runs(scale.place(curve.values), np.linspace(0, WIDTH, window.spans + 1))
    drawn = "".join(line for line, _, _ in runs)
    style = f"line {curve.tone}{' dashed' if curve.dashed else ''}"
    found = f'<path class="{style}" d="{drawn}"/>'
    if curve.filled:
        areas = "".join(f"{line}V{HEIGHT}H{first}Z" for line, first, _ in runs)
        found = f'<path class="area {curve.tone}" d="{areas}"/>{found}'
    return found


def _runs(heights: Numbers, edges: Numbers) -> list[tuple[str, str, str]]:
    """The pieces between gaps: how to draw each, and where it begins and ends."""
    known = ~np.isnan(heights)
    pieces = np.split(np.arange(len(heights)), np.flatnonzero(np.diff(known)) + 1)
    return [_run(piece, heights, edges) for piece in pieces if len(piece) and known[piece[0]]]


def _run(piece: npt.NDArray[np.int64], heights: Numbers, edges: Numbers) -> tuple[str, str, str]:
    first, last = _x(edges[piece[0]]), _x(edges[piece[-1] + 1])
    if len(heights) < FEW:
        steps = [f"V{_y(heights[n])}H{_x(edges[n + 1])}" for n in piece]
        return f"M{first} {_y(heights[piece[0]])}" + "".join(steps), first, last
    middles = (edges[piece] + edges[piece + 1]) / 2
    points = [f"{_x(x)} {_y(y)}" for x, y in zip(middles, heights[piece], strict=True)]
    # A point alone is seen as well: the line has round ends.
    line = "M" + "L".join(points) + ("h0" if len(points) == 1 else "")
    return line, _x(middles[0]), _x(middles[-1])


def _x(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _y(height: float) -> str:
    return f"{HEIGHT * (1 - height):.1f}".removesuffix(".0")


def _heights(scale: Scale) -> Numbers:
    return scale.place(np.array(scale.ticks))


# --- words ----------------------------------------------------------------------------------------
def _legend(curves: Sequence[Curve]) -> str:
    names = "".join(
        f'<li class="{curve.tone}">{escape(curve.name)}</li>' for curve in curves if curve.name
    )
    return f'<ul class="legend">{names}</ul>' if names else ""


def _beside(scale: Scale, unit: Unit) -> str:
    marks = "".join(
        f'<span style="bottom:{100 * height:.1f}%">{escape(unit.show(tick))}</span>'
        for tick, height in zip(scale.ticks, _heights(scale), strict=True)
    )
    return f'<div class="ys" aria-hidden="true">{marks}</div>'


_STEPS = (
    *(5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400),
    *(86_400 * n for n in (2, 7, 14, 28, 56, 112, 364)),
)


def _below(window: Window) -> str:
    length = window.end - window.start
    step = next((step for step in _STEPS if length / step <= 6), _STEPS[-1])
    first = -(-window.start // step) * step
    marks = "".join(
        f'<span style="left:{100 * (at - window.start) / length:.2f}%">{_clock(at, step)}</span>'
        for at in range(first, window.end, step)
        # Words at the very edge would stand out of the chart.
        if 0.03 < (at - window.start) / length < 0.97
    )
    return f'<div class="xs" aria-hidden="true">{marks}</div>'


def _clock(at: int, step: int) -> str:
    found = datetime.fromtimestamp(at, UTC)
    if step >= 86_400 or (at % 86_400 == 0 and step >= 3600):
        return f"{found.day} {found:%b}"
    return f"{found:%H:%M:%S}" if step < 60 else f"{found:%H:%M}"
