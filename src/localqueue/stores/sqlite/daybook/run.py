"""Messages that were leased in one call, as their ends have to know them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Leased(NamedTuple):
    """Of some of them."""

    tokens: tuple[int, ...]
    created_at: Sequence[float]
    positions: Sequence[float]


class Run(NamedTuple):
    """Kept as columns: most of it is the same for all."""

    queue: int
    numbers: Sequence[int]
    token: int
    """Of the first; each has the next one."""
    created_at: Sequence[float]
    positions: Sequence[float]
    leased_at: float
    worker: str | None

    def leases_of(self, numbers: tuple[int, ...]) -> Leased:
        """Of these of its messages, in their order; most are all of it, or the next of it."""
        first = self.numbers.index(numbers[0])
        end = first + len(numbers)
        if numbers == (*self.numbers[first:end],):
            tokens = tuple(range(self.token + first, self.token + end))
            return Leased(tokens, self.created_at[first:end], self.positions[first:end])
        places = [self.numbers.index(number) for number in numbers]
        return Leased(
            tuple(self.token + place for place in places),
            [self.created_at[place] for place in places],
            [self.positions[place] for place in places],
        )
