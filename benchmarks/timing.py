"""Timing two things against each other on a machine that does other work at the same time."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
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


def in_turns(contenders: Sequence[Callable[[], object]], rounds: int) -> None:
    """Let each contender measure itself once per round.

    They run one after the other, and backwards in every second round, so that what else the machine
    does hits all of them and none is always the first.
    """
    for number in range(rounds):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            gc.collect()
            contender()
