"""What tests of the pipeline share: the session of the tests of Spark, and a lake of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from localqueue.spark.pipeline.lake import Lake
from tests.spark.conftest import spark, store_path, url

__all__ = ["spark", "store_path", "url"]

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In the test process that has the session already."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")
