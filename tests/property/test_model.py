"""Every answer of both stores is the reference model's, whatever is done in whatever order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.protocol import QueueStore
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.testing.model_run import compare_with_model
from localqueue.testing.side_by_side import SideBySide

SEEDS = range(1, 6)
OPERATIONS = 2_500
MORE_SEEDS = range(1, 11)
MORE_OPERATIONS = 10_000


def in_memory() -> SideBySide:
    """A memory store has nothing to reopen: it stays."""
    return SideBySide(MemoryQueueStore(), reopen=lambda store: store)


def in_a_file(folder: Path) -> Callable[[], SideBySide]:
    made = 0

    def make() -> SideBySide:
        nonlocal made
        made += 1
        path = folder / f"{made}.sqlite3"

        def reopen(store: QueueStore) -> QueueStore:
            store.close()
            return SQLiteQueueStore(path, durability="relaxed")

        return SideBySide(SQLiteQueueStore(path, durability="relaxed"), reopen=reopen)

    return make


@pytest.mark.parametrize("seed", SEEDS)
def test_the_memory_store_answers_as_the_model_does(seed: int) -> None:
    compare_with_model(in_memory, seed=seed, operations=OPERATIONS)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_sqlite_store_answers_as_the_model_does_and_after_reopening_too(
    seed: int, tmp_path: Path
) -> None:
    compare_with_model(in_a_file(tmp_path), seed=seed, operations=OPERATIONS)


@pytest.mark.long
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_both_stores_answer_as_the_model_does_four_times_as_long(seed: int, tmp_path: Path) -> None:
    compare_with_model(in_memory, seed=seed, operations=MORE_OPERATIONS)
    compare_with_model(in_a_file(tmp_path), seed=seed, operations=MORE_OPERATIONS)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_001, 1_005))
def test_the_sqlite_store_answers_as_the_model_does_for_a_long_time(
    seed: int, tmp_path: Path
) -> None:
    compare_with_model(in_a_file(tmp_path), seed=seed, operations=100_000)
