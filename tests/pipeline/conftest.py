"""What tests of the pipeline share: the session of the tests of Spark, and a lake of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from localqueue.spark.pipeline.lake import Lake
from tests.spark.conftest import spark, store_path, url

__all__ = ["spark", "store_path", "url"]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")
