"""Every answer of both stores is the reference model's, whatever is done in whatever order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from localqueue.stores.memory import MemoryQueueStore
from localqueue.stores.protocol import QueueStore
from localqueue.stores.sqlite.daybook import book
from localqueue.stores.sqlite.daybook.entries import Acks, Entry, Leases, Puts
from localqueue.stores.sqlite.store import SQLiteQueueStore
from localqueue.testing.model_run import compare_with_model
from localqueue.testing.plain_operations import PlainOperations
from localqueue.testing.random_operations import RandomOperations
from localqueue.testing.side_by_side import SideBySide
from tests.unit.stores.phrases import count_noted, note_at_once

SEEDS = range(1, 6)
SHORT_GENERATION = 24
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


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    """What is noted in daybooks, from the first call on and in short generations."""
    note_at_once(monkeypatch)
    monkeypatch.setattr(book, "MOST_EVENTS", SHORT_GENERATION)
    return count_noted(monkeypatch)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_memory_store_answers_as_the_model_does(seed: int) -> None:
    compare_with_model(in_memory, seed=seed, operations=OPERATIONS)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_sqlite_store_answers_as_the_model_does_and_after_reopening_too(
    seed: int, tmp_path: Path, noted: list[Entry]
) -> None:
    compare_with_model(in_a_file(tmp_path), seed=seed, operations=OPERATIONS)

    assert {type(entry) for entry in noted} >= {Puts, Leases}


@pytest.mark.parametrize("seed", SEEDS)
def test_plain_calls_that_are_noted_are_answered_as_the_model_does(
    seed: int, tmp_path: Path, noted: list[Entry]
) -> None:
    compare_with_model(in_a_file(tmp_path), seed=seed, operations=OPERATIONS, kind=PlainOperations)

    kinds = Counter(type(entry) for entry in noted)
    assert min(kinds[kind] for kind in (Puts, Leases, Acks)) > OPERATIONS / 20


@pytest.mark.long
@pytest.mark.parametrize("seed", MORE_SEEDS)
@pytest.mark.usefixtures("noted")
def test_both_stores_answer_as_the_model_does_four_times_as_long(seed: int, tmp_path: Path) -> None:
    for kind in (RandomOperations, PlainOperations):
        compare_with_model(in_memory, seed=seed, operations=MORE_OPERATIONS, kind=kind)
        compare_with_model(in_a_file(tmp_path), seed=seed, operations=MORE_OPERATIONS, kind=kind)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_001, 1_005))
@pytest.mark.parametrize("kind", [RandomOperations, PlainOperations])
@pytest.mark.usefixtures("noted")
def test_the_sqlite_store_answers_as_the_model_does_for_a_long_time(
    seed: int, kind: type[RandomOperations], tmp_path: Path
) -> None:
    compare_with_model(in_a_file(tmp_path), seed=seed, operations=100_000, kind=kind)
