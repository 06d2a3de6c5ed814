"""Quantiles out of the sketches that Spark leaves in ``minutes``, without Spark.

They are KLL sketches of whole microseconds, as Apache DataSketches writes them. A sketch keeps some
of its values, each of which stands for a power of two of them. So the values of several sketches
put together, each with its weight, answer for all of them: nothing has to be merged.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from localqueue.errors import StoreUnsupported

MICROSECONDS = 1e6
_EMPTY, _SINGLE = 1, 4  # flags
_FAMILY = 15
_SINGLE_ITEM, _ITEMS = 8, 20  # where the item, or the array of levels, begins

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
    parts = [part for sketch in sketches if sketch for part in _levels(sketch)]
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


def _levels(sketch: bytes) -> list[tuple[npt.NDArray[np.int64], int]]:
    """The kept values of a sketch by level, with what each of them stands for."""
    if len(sketch) < _SINGLE_ITEM or sketch[2] != _FAMILY:
        raise StoreUnsupported("a sketch of the table minutes is not one that this release reads")
    flags = sketch[3]
    if flags & _EMPTY:
        return []
    if flags & _SINGLE:
        return [(np.frombuffer(sketch, "<i8", 1, _SINGLE_ITEM), 1)]
    levels = sketch[18]
    starts = list(struct.unpack_from(f"<{levels}i", sketch, _ITEMS))
    # The smallest and the greatest value stand before those that are kept.
    items = np.frombuffer(sketch, "<i8", -1, _ITEMS + 4 * levels + 16)
    bounds = [start - starts[0] for start in starts] + [len(items)]
    return [
        (items[bounds[level] : bounds[level + 1]], 1 << level)
        for level in range(levels)
        if bounds[level] < bounds[level + 1]
    ]
