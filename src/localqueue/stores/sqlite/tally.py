"""Adding up events: what they did to the states of each queue, to its workers and its journal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

Shape = tuple[int, int | None, int | None, int, str | None]
"""What counts of an event: its queue, the state it leaves, the state it enters, how many messages
moved, and the worker that leased them."""


class Happened:
    """The events after ``start`` up to ``upto`` in one commit: how many of each shape."""

    __slots__ = ("shapes", "start", "upto")

    def __init__(self, start: int) -> None:
        self.start = self.upto = start
        self.shapes: dict[Shape, int] = {}

    def add(self, shape: Shape, times: int) -> None:
        self.shapes[shape] = self.shapes.get(shape, 0) + times
        self.upto += times

    def moved(self, queue: int, *states: int) -> int:
        """How many messages more the queue has in these states."""
        return sum(
            n * times * ((entered in states) - (left in states))
            for (owner, left, entered, n, _), times in self.shapes.items()
            if owner == queue
        )


class Tally:
    """A sum over events."""

    __slots__ = ("events", "leases", "moves")

    def __init__(self) -> None:
        self.moves: dict[tuple[int, int], int] = {}
        """By queue and state: how many messages more it has."""
        self.leases: dict[tuple[int, str], int] = {}
        """By queue and worker: how many leases it took."""
        self.events: dict[int, int] = {}
        """By queue: how many events there were."""

    def add(self, shapes: Mapping[Shape, int]) -> Self:
        moves, leases, events = self.moves, self.leases, self.events
        for (queue, left, entered, n, worker), times in shapes.items():
            if left is not None:
                moves[queue, left] = moves.get((queue, left), 0) - n * times
            if entered is not None:
                moves[queue, entered] = moves.get((queue, entered), 0) + n * times
            if worker is not None:
                leases[queue, worker] = leases.get((queue, worker), 0) + n * times
            events[queue] = events.get(queue, 0) + times
        return self

    def merge(self, other: Tally) -> Self:
        """Add what another one has."""
        for move, n in other.moves.items():
            self.moves[move] = self.moves.get(move, 0) + n
        for lease, n in other.leases.items():
            self.leases[lease] = self.leases.get(lease, 0) + n
        for queue, n in other.events.items():
            self.events[queue] = self.events.get(queue, 0) + n
        return self
