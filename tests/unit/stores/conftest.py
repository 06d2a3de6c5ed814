"""What a store of a test does with plain calls: note them at once, or never."""

from __future__ import annotations

import pytest

from tests.unit.stores.phrases import note_at_once, note_nothing


@pytest.fixture
def tables_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of transactions: no call of theirs stands in a daybook."""
    note_nothing(monkeypatch)


@pytest.fixture
def noting(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of the daybook: the first call that can be noted is."""
    note_at_once(monkeypatch)
