"""Dividing numbered rows into ranges, so that each has about as many rows.

Rows are numbered as they come, with gaps: of rows that are gone, and of leaps that a restored
backup makes. What is known is how many rows there are, and the next number after any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Range = tuple[int, int]
"""The first and the last number, both of which belong to it."""

MOST_GAPS = 256
"""So many gaps are looked for at most."""


def populated(
    whole: Range,
    rows: int,
    before: Callable[[int], int | None],
    after: Callable[[int], int | None],
) -> list[Range]:
    """The range without its large gaps.

    ``before`` gives the greatest number of a row below another number, ``after`` the least one that
    is not below it.
    """
    parts = [whole]
    for _ in range(MOST_GAPS):
        if sum(map(_length, parts)) <= 2 * rows:
            break
        widest = max(parts, key=_length)
        low, high = widest
        middle = (low + high + 1) // 2
        left, right = before(middle), after(middle)
        parts.remove(widest)
        if left is not None and left >= low:
            parts.append((low, left))
        if right is not None and right <= high:
            parts.append((right, high))
    return sorted(parts)


def cut(parts: Sequence[Range], pieces: int) -> list[Range]:
    """The same numbers in about so many ranges of equal length."""
    length = max(1, -(-sum(map(_length, parts)) // max(1, pieces)))
    return [
        (start, min(start + length - 1, high))
        for low, high in parts
        for start in range(low, high + 1, length)
    ]


def _length(part: Range) -> int:
    return part[1] - part[0] + 1
