"""Sketches that tell quantiles and can be merged: KLL of whole numbers, as DataSketches writes it.

Spark's functions read and merge the same ones (``kll_merge_agg_bigint`` and others). They are made
here, because a batch has thousands of small ones: by numpy that costs a tenth, and no job of Spark.
The algorithm is that of Karnin, Lang and Liberty: a level that is too full hands every other one of
its sorted values to the next level, where each stands for twice as many. Up to some two hundred
values all are kept.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Sequence
from itertools import count

import numpy as np
import numpy.typing as npt

from localqueue.errors import StoreUnsupported

Numbers = npt.NDArray[np.int64]

K, M = 200, 8
"""How many values the highest level has room for, and the lowest at least."""
_FAMILY, _VERSION = 15, 1
_EMPTY, _SORTED, _SINGLE = 1, 2, 4  # flags
_SINGLE_ITEM, _LEVELS = 8, 20  # where the item, or the array of levels, begins


def sketch_of(values: Numbers) -> bytes | None:
    """The sketch of these numbers, in any order; None when there are none."""
    if not len(values):
        return None
    ordered = np.sort(values)
    return _packed([ordered], len(values), int(ordered[0]), int(ordered[-1]))


def merged(sketches: Iterable[bytes | None]) -> bytes | None:
    """One sketch for the numbers of all of them."""
    there = [sketch for sketch in sketches if sketch and not sketch[3] & _EMPTY]
    if len(there) < 2:
        return there[0] if there else None
    several = [levels_of(sketch) for sketch in there]
    height = max(map(len, several))
    together = [
        np.sort(np.concatenate([levels[at] for levels in several if at < len(levels)]))
        for at in range(height)
    ]
    ends = [_ends(sketch) for sketch in there]
    n = sum(map(_count, there))
    return _packed(together, n, min(low for low, _ in ends), max(high for _, high in ends))


def levels_of(sketch: bytes) -> list[Numbers]:
    """The values that are kept, by level; one of level L stands for 2 to the L of them."""
    if len(sketch) < _SINGLE_ITEM or sketch[2] != _FAMILY:
        raise StoreUnsupported("a sketch of the table minutes is not one that this release reads")
    if sketch[3] & _EMPTY:
        return []
    if sketch[3] & _SINGLE:
        return [np.frombuffer(sketch, "<i8", 1, _SINGLE_ITEM)]
    levels = sketch[18]
    starts = struct.unpack_from(f"<{levels}i", sketch, _LEVELS)
    # The smallest and the greatest value stand before those that are kept.
    items = np.frombuffer(sketch, "<i8", -1, _LEVELS + 4 * levels + 16)
    bounds = [*(start - starts[0] for start in starts), len(items)]
    return [items[bounds[at] : bounds[at + 1]] for at in range(levels)]


def _count(sketch: bytes) -> int:
    return 1 if sketch[3] & _SINGLE else int(struct.unpack_from("<q", sketch, 8)[0])


def _ends(sketch: bytes) -> tuple[int, int]:
    """The smallest and the greatest value."""
    if sketch[3] & _SINGLE:
        (only,) = struct.unpack_from("<q", sketch, _SINGLE_ITEM)
        return only, only
    low, high = struct.unpack_from("<qq", sketch, _LEVELS + 4 * sketch[18])
    return low, high


def _packed(levels: list[Numbers], n: int, low: int, high: int) -> bytes:
    if n == 1:
        return struct.pack("<BBBBHBBq", 2, 2, _FAMILY, _SINGLE, K, M, 0, low)
    _compress(levels)
    sizes = [len(level) for level in levels]
    # Places in an array that has room for all levels, of which the first ones may be free.
    starts = np.cumsum([_room(len(levels)) - sum(sizes), *sizes[:-1]]).astype("<i4")
    head = struct.pack("<BBBBHBBqHBB", 5, _VERSION, _FAMILY, _SORTED, K, M, 0, n, K, len(levels), 0)
    kept = np.concatenate(levels).astype("<i8")
    return head + starts.tobytes() + struct.pack("<qq", low, high) + kept.tobytes()


def _compress(levels: list[Numbers]) -> None:
    while sum(map(len, levels)) > _room(len(levels)):
        at = next(n for n in count() if len(levels[n]) >= _capacity(n, len(levels)))
        if at + 1 == len(levels):
            levels.append(np.empty(0, np.int64))
        items = levels[at]
        # Of an odd number one stays: the first or the last.
        stays = len(items) % 2 and random.getrandbits(1)
        half = items[len(items) % 2 - stays : len(items) - stays][random.getrandbits(1) :: 2]
        levels[at] = np.concatenate([items[: len(items) % 2 - stays], items[len(items) - stays :]])
        levels[at + 1] = np.sort(np.concatenate([levels[at + 1], half]))


def _room(levels: int) -> int:
    return sum(_capacity(at, levels) for at in range(levels))


def _capacity(at: int, levels: int) -> int:
    """Of a level, when there are so many: two thirds of the next higher one's."""
    depth = levels - at - 1
    thirds: int = 3**depth
    return max(M, ((2 * K << depth) // thirds + 1) >> 1)


def quantiles(sketch: bytes | None, ranks: Sequence[float]) -> list[int | None]:
    """The values at these ranks, from 0 to 1; None when there is no sketch."""
    if sketch is None:
        return [None] * len(ranks)
    levels = levels_of(sketch)
    values = np.concatenate(levels)
    weights = np.repeat(1 << np.arange(len(levels)), [len(level) for level in levels])
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(weights[order])
    found = np.searchsorted(upto, np.array(ranks) * upto[-1])
    return [int(values[order[min(int(at), len(order) - 1)]]) for at in found]
