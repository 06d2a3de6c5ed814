"""A contestant in a process of its own, asked over a pipe."""

from __future__ import annotations

import traceback
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from benchmarks.durability import Durability
from benchmarks.peers.contestant import Contestant, Entrant, Value
from benchmarks.timing import seconds
from benchmarks.values import job

CHUNK = 10_000
# Not forked: none of them should find the modules, threads or files of another.
SPAWN = get_context("spawn")


class ContestantFailed(Exception):
    """It raised; the message has the traceback of its process."""


class ContestantProcess:
    """An open contestant. It works only while it is asked to, the others wait meanwhile."""

    def __init__(self, entrant: Entrant, folder: Path, durability: Durability) -> None:
        self.entrant = entrant
        folder.mkdir(parents=True, exist_ok=True)
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_serve, args=(entrant, folder, durability, theirs))
        self._process.start()
        theirs.close()
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def fill(self, first: int, count: int) -> None:
        """Put so many, numbered from ``first``, in whatever way is fastest."""
        for start in range(first, first + count, CHUNK):
            self._ask("fill", start, min(CHUNK, first + count - start))

    def put(self, first: int, count: int) -> float:
        """Put so many, numbered from ``first``, one by one; the seconds that took."""
        return self._ask("put", first, count)

    def take(self, count: int) -> float:
        """Take so many, one by one; the seconds that took.

        ContestantFailed when what it gave back is not what was put, in order.
        """
        return self._ask("take", 0, count)

    def close(self) -> None:
        """End the process. One that does not end by itself is killed."""
        try:
            self._pipe.send(None)
        except OSError:
            pass  # it has ended already
        self._process.join(60.0)
        self._process.kill()
        self._process.join()
        self._process.close()
        self._pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, verb: str, first: int, count: int) -> float:
        self._pipe.send((verb, first, count))
        return self._answer()

    def _answer(self) -> float:
        try:
            answer: float | str = self._pipe.recv()
        except EOFError:
            raise ContestantFailed(f"{self.entrant.name}: its process has ended") from None
        if isinstance(answer, str):
            raise ContestantFailed(f"{self.entrant.name}:\n{answer}")
        return answer


def _serve(
    entrant: Entrant, folder: Path, durability: Durability, pipe: Connection[Any, Any]
) -> None:
    """What runs in the process: one answer, seconds or a traceback, for opening and each request."""
    try:
        contestant = entrant.open(folder, durability)
        try:
            pipe.send(0.0)
            while (asked := pipe.recv()) is not None:
                pipe.send(_work(contestant, *asked))
        finally:
            contestant.close()
    except Exception:
        pipe.send(traceback.format_exc())


def _work(contestant: Contestant, verb: str, first: int, count: int) -> float:
    if verb == "take":
        taken: list[Value] = []
        spent = seconds(lambda: taken.extend(contestant.take(count)))
        head = taken[0]["number"]
        assert taken == [job(number) for number in range(head, head + count)], taken
        contestant.tidy()
        return spent
    values = [job(number) for number in range(first, first + count)]
    if verb == "fill":
        return seconds(lambda: contestant.fill(values))
    return seconds(lambda: [contestant.put(value) for value in values])
