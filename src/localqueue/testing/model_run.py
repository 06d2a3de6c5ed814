"""Random operations on a store and the model, and a report that can be read when they disagree."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from localqueue.testing.random_operations import RandomOperations
from localqueue.testing.side_by_side import Disagreement, Operation, SideBySide

MOST_TOLD = 30


def compare_with_model(
    make: Callable[[], SideBySide],
    *,
    seed: int,
    operations: int,
    shrink_seconds: float = 60.0,
    kind: type[RandomOperations] = RandomOperations,
) -> None:
    """Do this many operations of a seed; Disagreement tells the shortest run that still differs.

    ``make`` is called for each run and gives a new, empty store with its model; ``kind`` chooses
    the operations.
    """
    done: list[Operation] = []
    pair = make()
    choice = kind(seed, pair.model, pair.now)
    try:
        for _ in range(operations):
            done.append(choice.next())
            pair.run(done[-1])
        return
    except Exception as error:
        first = error
    finally:
        pair.close()
    shortest = shrink(done, lambda some: _alike(first, fate(make, some)), seconds=shrink_seconds)
    # The shorter run is what is told, so its own error is too.
    last = fate(make, shortest) or first
    raise Disagreement(
        f"seed {seed}, operation {len(done)}: {type(first).__name__}: {first}\n"
        f"the last operations:\n{_told(done)}\n"
        f"the shortest run that fails alike:\n{_told(shortest)}\n"
        f"and how it fails: {type(last).__name__}: {last}"
    ) from first


def fate(make: Callable[[], SideBySide], operations: Sequence[Operation]) -> Exception | None:
    """The error that these operations end with, on a new store."""
    pair = make()
    try:
        for operation in operations:
            pair.run(operation)
    except Exception as error:
        return error
    finally:
        pair.close()
    return None


def shrink(
    operations: Sequence[Operation],
    fails: Callable[[Sequence[Operation]], bool],
    *,
    seconds: float,
) -> list[Operation]:
    """Leave out as many operations as possible, in ever smaller pieces, so that it still fails."""
    end = time.monotonic() + seconds
    shortest = list(operations)
    piece = max(1, len(shortest) // 2)
    shorter = True
    while piece > 1 or shorter:
        start, shorter = 0, False
        while start < len(shortest):
            if time.monotonic() >= end:
                return shortest
            rest = shortest[:start] + shortest[start + piece :]
            if rest and fails(rest):
                shortest, shorter = rest, True
            else:
                start += piece
        piece = max(1, piece // 2)
    return shortest


def _alike(error: Exception, other: Exception | None) -> bool:
    """Whether two runs fail in the same way, as far as the first word of a difference tells."""
    if type(error) is not type(other):
        return False
    return not isinstance(error, Disagreement) or str(error).split()[0] == str(other).split()[0]


def _told(operations: Sequence[Operation]) -> str:
    return "\n".join(map(str, operations[-MOST_TOLD:]))
