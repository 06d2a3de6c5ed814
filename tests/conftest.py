"""How the tests are shared out to processes, and what these start with."""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.spark import class_archive


class FilesOfSparkTogether(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Tests go out one by one, but those of a file that uses Spark stay together.

    They share what their file makes once, such as a cluster; each process has one session of Spark,
    which takes seconds to start. (The groups of xdist 3.8 are not seen by pytest 9.2.)
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, _ = nodeid.partition("::")
        return file if "spark" in file or "pipeline" in file else nodeid


def pytest_configure() -> None:
    class_archive.use()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """For ``--dist loadgroup``."""
    return FilesOfSparkTogether(config, log) if config.getvalue("dist") == "loadgroup" else None
