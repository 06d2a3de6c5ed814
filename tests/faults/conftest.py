"""Where the files of these tests are."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.nursery import Nursery

_IN_MEMORY = Path("/dev/shm")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one, for tests that do not depend on a real disk.

    They sync thousands of times, and what they cut off is simulated or outlives the process in the
    page cache either way.
    """
    if not os.access(_IN_MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="localqueue-", dir=_IN_MEMORY) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as started:
        yield started
