"""Looking after a file makes none: a path that was misspelt must not look healthy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from localqueue.errors import StoreMissing
from localqueue.stores.sqlite.store import SQLiteQueueStore

OPERATIONS: dict[str, Callable[[SQLiteQueueStore, Path], object]] = {
    "backup": lambda store, target: store.backup(target),
    "check": lambda store, target: store.check(),
    "salvage": lambda store, target: store.salvage(target),
    "vacuum": lambda store, target: store.vacuum(),
    "diagnostics": lambda store, target: store.diagnostics(),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
@pytest.mark.parametrize("empty", [False, True], ids=["missing", "empty"])
def test_what_is_not_there_is_not_made(
    tmp_path: Path, operation: Callable[[SQLiteQueueStore, Path], object], empty: bool
) -> None:
    path = tmp_path / "queue.sqlite3"
    if empty:
        path.touch()
    before = list(tmp_path.iterdir())

    with pytest.raises(StoreMissing, match=r"queue\.sqlite3: (there is no such|the) file"):
        operation(SQLiteQueueStore(path), tmp_path / "target.sqlite3")

    assert list(tmp_path.iterdir()) == before
