"""Sketches that count different names and can be merged: HyperLogLog, as DataSketches writes them.

Spark's own functions read and merge the same ones (``hll_union_agg``, ``hll_sketch_estimate``). Up
to some hundred names a sketch keeps a number for each, which is as good as the name; above that it
is 1,024 small numbers, and its count is right within a few percent.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

LG_K = 10
SLOTS = 1 << LG_K
_FAMILY, _VERSION, _TYPE = 7, 1, 2 << 2  # the type with a byte for each slot
_LIST, _SET, _HLL = 0, 1, 2  # modes
_FIRST = {_LIST: 8, _SET: 12, _HLL: 40}
"""Where the numbers begin, by mode."""
_COMPACT, _OUT_OF_ORDER = 8, 16  # flags
_MOST_IN_A_LIST, _MOST_IN_A_SET = 7, 96
_SEED = 9001

Slots = npt.NDArray[np.uint8]


def sketch_of(names: Iterable[str | None]) -> bytes | None:
    """The sketch of these names; None when there are none."""
    numbers = {_number(name) for name in names if name is not None}
    return _packed(numbers, None) if numbers else None


def merged(sketches: Iterable[bytes | None]) -> bytes | None:
    """One sketch for the names of all of them."""
    there = list(dict.fromkeys(sketch for sketch in sketches if sketch))
    if len(there) < 2:
        return there[0] if there else None
    numbers, slots = set[int](), list[Slots]()
    for sketch in there:
        if sketch[7] & 3 == _HLL:
            slots.append(np.frombuffer(sketch, np.uint8, SLOTS, _FIRST[_HLL]))
        else:
            numbers |= numbers_of(sketch)
    return _packed(numbers, np.maximum.reduce(slots) if slots else None)


def numbers_of(sketch: bytes) -> frozenset[int]:
    """A number for each name; none of a sketch that does not tell them apart."""
    if len(sketch) < 8 or sketch[2] != _FAMILY or sketch[7] & 3 == _HLL:
        return frozenset()
    first = _FIRST[sketch[7] & 3]
    n = (len(sketch) - first) // 4
    return frozenset(number for number in struct.unpack_from(f"<{n}i", sketch, first) if number)


def count_of(sketch: bytes | None) -> int:
    """How many different names, about."""
    if sketch is None:
        return 0
    if sketch[7] & 3 != _HLL:
        return len(numbers_of(sketch))
    slots = np.frombuffer(sketch, np.uint8, SLOTS, _FIRST[_HLL])
    free = int((slots == 0).sum())
    if free > SLOTS // 20:
        return round(SLOTS * math.log(SLOTS / free))
    return round(0.7213 / (1 + 1.079 / SLOTS) * SLOTS**2 / float(np.exp2(-1.0 * slots).sum()))


def _packed(numbers: set[int], slots: Slots | None) -> bytes:
    if slots is None and len(numbers) <= _MOST_IN_A_SET:
        return _few(sorted(numbers))
    filled = np.zeros(SLOTS, np.uint8) if slots is None else slots.copy()
    for number in numbers:
        at = number & (SLOTS - 1)
        filled[at] = max(int(filled[at]), (number >> 26) & 63)
    powers = np.exp2(-1.0 * filled)
    small, large = float(powers[filled < 32].sum()), float(powers[filled >= 32].sum())
    free = int((filled == 0).sum())
    head = struct.pack("<BBBBBBBB", 10, _VERSION, _FAMILY, LG_K, 0, _OUT_OF_ORDER, 0, _TYPE | _HLL)
    return head + struct.pack("<dddii", 0.0, small, large, free, 0) + filled.tobytes()


def _few(numbers: list[int]) -> bytes:
    n, body = len(numbers), struct.pack(f"<{len(numbers)}i", *numbers)
    if n <= _MOST_IN_A_LIST:
        head = (2, _VERSION, _FAMILY, LG_K, 3, _COMPACT, n, _TYPE | _LIST)
        return struct.pack("<BBBBBBBB", *head) + body
    # A table of which at most three quarters are used.
    size = max(5, math.ceil(math.log2(n / 0.75)))
    head = (3, _VERSION, _FAMILY, LG_K, size, _COMPACT, 0, _TYPE | _SET)
    return struct.pack("<BBBBBBBBi", *head, n) + body


@lru_cache(maxsize=4096)
def _number(name: str) -> int:
    """Where the name is counted, in 26 bits, and how rare it is, in the 6 bits above."""
    low, high = _murmur3(name.encode())
    rare = min(64 - high.bit_length(), 62) + 1
    number = (rare << 26) | (low & 0x3FFFFFF)
    return number - (1 << 32) if number >> 31 else number


_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def _murmur3(data: bytes) -> tuple[int, int]:
    """MurmurHash3 with 128 bits, the variant for 64-bit machines."""
    h1 = h2 = _SEED
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        k1, k2 = struct.unpack_from("<QQ", data, at)
        h1 ^= _mixed1(k1)
        h1 = ((_turned(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _mixed2(k2)
        h2 = ((_turned(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    k1, k2 = struct.unpack("<QQ", data[whole:].ljust(16, b"\0"))
    h1, h2 = h1 ^ _mixed1(k1) ^ len(data), h2 ^ _mixed2(k2) ^ len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1, h2 = _final(h1), _final(h2)
    h1 = (h1 + h2) & _MASK
    return h1, (h2 + h1) & _MASK


def _mixed1(k: int) -> int:
    return _turned(k * _C1 & _MASK, 31) * _C2 & _MASK


def _mixed2(k: int) -> int:
    return _turned(k * _C2 & _MASK, 33) * _C1 & _MASK


def _turned(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & _MASK


def _final(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & _MASK
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return h ^ h >> 33
