"""What a process and all that it has started have used of the processors."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_seconds(root: int | None = None) -> float | None:
    """Of the tree below this process, what has ended included; None where /proc tells nothing.

    Unlike the time by the clock, it hardly depends on what else the machine does.
    """
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        children.setdefault(int(fields[1]), []).append(int(entry.name))
        ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    if not ticks:
        return None
    waiting, total = [root or os.getpid()], 0
    while waiting:
        process = waiting.pop()
        total += ticks.get(process, 0)
        waiting += children.get(process, [])
    return total / os.sysconf("SC_CLK_TCK")
