"""How the tests are shared out to processes."""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling


class SparkInOneProcess(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Tests go out one by one, but those that use Spark stay together, in two halves.

    A session of Spark takes seconds to start and a gigabyte, and they share it. They start first,
    since they are the largest part. (The groups of xdist 3.8 are not seen by pytest 9.2.)
    """

    def _split_scope(self, nodeid: str) -> str:
        if "spark/test_work" in nodeid or "spark/test_write" in nodeid:
            return "work and writes on Spark"
        return "spark" if "spark" in nodeid or "pipeline" in nodeid else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """For ``--dist loadgroup``."""
    return SparkInOneProcess(config, log) if config.getvalue("dist") == "loadgroup" else None
