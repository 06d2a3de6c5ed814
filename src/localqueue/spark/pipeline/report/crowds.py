"""Who was there: the workers of some spans, told apart as far as that is known.

``minutes`` has them as HyperLogLog sketches of Apache DataSketches. A sketch of a few dozen names
keeps a number for each of them, so that workers of several queues and minutes are counted once. A
larger one does not; then the greatest of the counts is taken.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

Crowd = frozenset[int | str]
"""Something for each worker that is equal for the same worker only."""

NOBODY: Crowd = frozenset()
_FAMILY = 7
_FIRST = {0: 8, 1: 12}
"""Where the numbers begin, by the mode of the sketch: a list or a set."""


def crowd_of(sketch: bytes | None) -> Crowd:
    """The workers of a sketch; nobody when it does not tell them apart."""
    if not sketch or len(sketch) < 8 or sketch[2] != _FAMILY:
        return NOBODY
    first = _FIRST.get(sketch[7] & 3)
    if first is None:
        return NOBODY
    n = (len(sketch) - first) // 4
    return frozenset(number for number in struct.unpack_from(f"<{n}i", sketch, first) if number)


def united(several: Iterable[Crowd]) -> Crowd:
    return NOBODY.union(*several)
