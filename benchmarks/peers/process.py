"""A contestant in a process of its own, asked over a pipe."""

from __future__ import annotations

import os
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from benchmarks.child import Child
from benchmarks.durability import Durability
from benchmarks.peers.contestant import Contestant, Entrant, Value
from benchmarks.timing import seconds
from benchmarks.values import job

CHUNK = 10_000


class ContestantFailed(Exception):
    """It raised; the message has the traceback of its process."""


class ContestantProcess:
    """An open contestant. It works only while it is asked to, the others wait meanwhile.

    Messages are numbered in the order in which they are put, from 0.
    """

    def __init__(self, entrant: Entrant, folder: Path, durability: Durability) -> None:
        self.entrant = entrant
        folder.mkdir(parents=True, exist_ok=True)
        self._child = Child(_serve, entrant, folder, durability)
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def fill(self, count: int) -> None:
        """Put the first messages in whatever way is fastest."""
        for start in range(0, count, CHUNK):
            self._ask("fill", start, min(CHUNK, count - start))

    def put(self, first: int, count: int) -> float:
        """Put so many, one by one; the seconds that took."""
        return self._ask("put", first, count)

    def take(self, first: int, count: int) -> float:
        """Take so many, one by one; the seconds that took.

        ContestantFailed when they are not the ones from ``first`` on, in order.
        """
        return self._ask("take", first, count)

    def close(self) -> None:
        self._child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, verb: str, first: int, count: int) -> float:
        self._child.pipe.send((verb, first, count))
        return self._answer()

    def _answer(self) -> float:
        try:
            answer: float | str = self._child.pipe.recv()
        except EOFError:
            raise ContestantFailed(f"{self.entrant.name}: its process has ended") from None
        if isinstance(answer, str):
            raise ContestantFailed(f"{self.entrant.name}:\n{answer}")
        return answer


def _serve(
    pipe: Connection[Any, Any], entrant: Entrant, folder: Path, durability: Durability
) -> None:
    """What runs in the process. It answers opening and each request: seconds, or a traceback."""
    try:
        contestant = entrant.open(folder, durability)
        _stay_on_one_core()
        try:
            pipe.send(0.0)
            while True:
                pipe.send(_work(contestant, *pipe.recv()))
        except EOFError:
            pass  # nobody asks any more
        finally:
            contestant.close()
    except Exception:
        pipe.send(traceback.format_exc())


def _stay_on_one_core() -> None:
    """The same for all, and only now: what a contestant has started, a server, may run beside it.

    Otherwise one is woken on a core that was at work, another on one that slept and takes twice as
    long, and which that is stays so for a whole race.
    """
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _work(contestant: Contestant, verb: str, first: int, count: int) -> float:
    values = [job(number) for number in range(first, first + count)]
    if verb == "fill":
        return seconds(lambda: contestant.fill(values))
    if verb == "put":
        return seconds(lambda: [contestant.put(value) for value in values])
    taken: list[Value] = []
    spent = seconds(lambda: taken.extend(contestant.take(count)))
    assert taken == values, (taken, values)
    contestant.tidy()
    return spent
