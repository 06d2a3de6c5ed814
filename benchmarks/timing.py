"""What a piece of work took, by the clock and by the time of this process."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter, process_time
from typing import NamedTuple


class Spent(NamedTuple):
    """What a piece of work took."""

    wall: float
    cpu: float
    """Seconds of this process alone: what other work on the machine does not change."""


def spent(work: Callable[[], object]) -> Spent:
    wall, cpu = perf_counter(), process_time()
    work()
    return Spent(perf_counter() - wall, process_time() - cpu)


def seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start
