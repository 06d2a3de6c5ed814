"""The upright axis of a chart: where a value is, and which values are written beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from localqueue.spark.pipeline.report.units import COUNT, DURATION, Unit

_ROUND_DURATIONS = (
    *(1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10),
    *(60, 600, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400),
)

Numbers = npt.NDArray[np.float64]


class Scale(Protocol):
    @property
    def ticks(self) -> tuple[float, ...]: ...

    def place(self, values: Numbers) -> Numbers:
        """How high each value is, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Linear:
    """From zero to a round number."""

    ticks: tuple[float, ...]

    def place(self, values: Numbers) -> Numbers:
        return np.clip(values / self.ticks[-1], 0, 1)


@dataclass(frozen=True, slots=True)
class Logarithmic:
    """Between round durations: waiting times differ by powers of ten."""

    ticks: tuple[float, ...]

    def place(self, values: Numbers) -> Numbers:
        low, high = math.log10(self.ticks[0]), math.log10(self.ticks[-1])
        logarithms = np.log10(np.maximum(values, self.ticks[0]))
        return np.clip((logarithms - low) / (high - low), 0, 1)


def scale_for(unit: Unit, values: Numbers, *, at_least: float = 0.0) -> Scale:
    """One that has room for all values, and reaches up to ``at_least``."""
    known = values[~np.isnan(values)]
    top = max(float(known.max(initial=0.0)), at_least)
    if unit is DURATION:
        above = known[known > 0]
        return _durations(float(above.min(initial=top)) if len(above) else 0.0, top)
    return Linear(_round_ticks(top, whole=unit is COUNT))


def _durations(low: float, high: float) -> Scale:
    if high <= 0:
        low, high = 1e-3, 1.0
    below = [tick for tick in _ROUND_DURATIONS if tick <= low] or [_ROUND_DURATIONS[0]]
    first = _ROUND_DURATIONS.index(below[-1])
    last = next((n for n, tick in enumerate(_ROUND_DURATIONS) if tick >= high), None)
    last = len(_ROUND_DURATIONS) - 1 if last is None else max(last, first + 1)
    return Logarithmic(_ROUND_DURATIONS[first : last + 1])


def _round_ticks(top: float, *, whole: bool) -> tuple[float, ...]:
    """Zero and three to five round numbers above it."""
    if top <= 0:
        return (0.0, 1.0)
    step = 10 ** math.floor(math.log10(top / 4))
    step *= next(n for n in (1, 2, 5, 10) if top / (step * n) <= 4.0001)
    if whole:
        step = max(1.0, step)
    return tuple(float(f"{step * n:.9g}") for n in range(math.ceil(top / step - 1e-9) + 1))
