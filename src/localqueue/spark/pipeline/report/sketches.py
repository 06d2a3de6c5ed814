"""Quantiles out of the sketches in ``minutes``.

They are KLL sketches of whole microseconds, see ``kll``. A sketch keeps some of its values, each of
which stands for a power of two of them. So the values of several sketches put together, each with
its weight, answer for all of them: nothing has to be merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from localqueue.spark.pipeline.kll import levels_of

MICROSECONDS = 1e6

Values = npt.NDArray[np.float64]
Weights = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Durations:
    """Some durations in seconds, in ascending order, and for how many each of them stands."""

    values: Values
    upto: Weights
    """How many durations are not longer than the value, as far as is known."""

    @property
    def count(self) -> int:
        return int(self.upto[-1]) if len(self.upto) else 0

    def quantile(self, rank: float) -> float | None:
        """None when there are no durations."""
        if not self.count:
            return None
        index = np.searchsorted(self.upto, rank * self.count)
        return float(self.values[min(int(index), len(self.values) - 1)])

    def quantiles(self, ranks: Sequence[float]) -> tuple[float | None, ...]:
        return tuple(self.quantile(rank) for rank in ranks)

    def longer_than(self, seconds: float) -> int:
        """How many are longer than that."""
        index = int(np.searchsorted(self.values, seconds, side="right"))
        return self.count - (int(self.upto[index - 1]) if index else 0)


NONE = Durations(np.empty(0, np.float64), np.empty(0, np.int64))


def together(sketches: Iterable[bytes | None]) -> Durations:
    """All durations of these sketches; a sketch that is not there has none."""
    parts = [
        (items, 1 << level)
        for sketch in sketches
        if sketch
        for level, items in enumerate(levels_of(sketch))
        if len(items)
    ]
    if not parts:
        return NONE
    values = np.concatenate([items for items, _ in parts]) / MICROSECONDS
    weights = np.repeat(
        np.array([weight for _, weight in parts], np.int64), [len(items) for items, _ in parts]
    )
    return _ordered(values, weights)


def exact(values: Values) -> Durations:
    """Durations that are all known, in seconds."""
    return Durations(np.sort(values), np.arange(1, len(values) + 1)) if len(values) else NONE


def joined(several: Iterable[Durations]) -> Durations:
    """The durations of all of them."""
    parts = [each for each in several if each.count]
    if len(parts) < 2:
        return parts[0] if parts else NONE
    values = np.concatenate([each.values for each in parts])
    return _ordered(values, np.concatenate([np.diff(each.upto, prepend=0) for each in parts]))


def _ordered(values: Values, weights: Weights) -> Durations:
    order = np.argsort(values, kind="stable")
    return Durations(values[order], np.cumsum(weights[order]))
