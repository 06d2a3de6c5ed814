"""Numbered rows in ranges: all of them, none twice, and without the large gaps."""

from __future__ import annotations

import random
from bisect import bisect_left

import pytest

from localqueue.spark.read.ranges import cut, populated


@pytest.mark.parametrize("seed", range(20))
def test_every_number_is_in_one_range(seed: int) -> None:
    choice = random.Random(seed)
    numbers = sorted(
        {
            start + step
            for start in choice.choices((0, 10, 5_000, 2**44, 2**45 + 7, 2**60), k=4)
            for step in choice.sample(range(500), 100)
        }
    )

    def before(limit: int) -> int | None:
        at = bisect_left(numbers, limit)
        return numbers[at - 1] if at else None

    def after(limit: int) -> int | None:
        at = bisect_left(numbers, limit)
        return numbers[at] if at < len(numbers) else None

    parts = populated((numbers[0], numbers[-1]), len(numbers), before, after)
    ranges = cut(parts, choice.randrange(1, 30))

    assert [sum(low <= n <= high for low, high in ranges) for n in numbers] == [1] * len(numbers)
    assert sum(high - low + 1 for low, high in ranges) < 10_000
    assert len(ranges) < 300


def test_a_range_without_gaps_is_not_looked_at() -> None:
    def ask(limit: int) -> int | None:
        raise AssertionError(limit)

    assert populated((1, 100), 60, ask, ask) == [(1, 100)]


def test_pieces_have_the_same_length() -> None:
    assert cut([(1, 10)], 3) == [(1, 4), (5, 8), (9, 10)]
    assert cut([(1, 2)], 10) == [(1, 1), (2, 2)]
    assert cut([(1, 5), (100, 101)], 2) == [(1, 4), (5, 5), (100, 101)]
