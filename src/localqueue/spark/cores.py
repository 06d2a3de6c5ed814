"""How many tasks of this process's machine can run at the same time."""

from __future__ import annotations

import os


def cores() -> int:
    """As many as this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
