"""Makes a failing run short enough to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localqueue.testing.side_by_side import Operation


def shrink(
    operations: Sequence[Operation],
    fails: Callable[[Sequence[Operation]], bool],
    *,
    attempts: int = 300,
) -> list[Operation]:
    """Leave out as many operations as possible, in ever smaller pieces, so that it still fails."""
    shortest = list(operations)
    piece = max(1, len(shortest) // 2)
    while attempts > 0:
        start, shorter = 0, False
        while start < len(shortest) and attempts > 0:
            attempts -= 1
            rest = shortest[:start] + shortest[start + piece :]
            if rest and fails(rest):
                shortest, shorter = rest, True
            else:
                start += piece
        if piece == 1 and not shorter:
            break
        piece = max(1, piece // 2)
    return shortest
