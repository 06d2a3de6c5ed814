"""Spark's checkpoint of the pipeline's query, seen from the lake.

The lake knows how far it is. The checkpoint only saves Spark from asking: one that is lost is begun
again where the lake ends, and one that is ahead of the lake is set aside, because following it
would leave out what is missing there.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from localqueue.spark.read.offsets import SHARD


def next_start(checkpoint: Path) -> dict[str, Any] | None:
    """The offset after which the query would go on; None when there is no checkpoint to follow."""
    newest = _newest(checkpoint / "offsets")
    if newest is None:
        return None
    if _newest(checkpoint / "commits") != newest:
        # That batch will be run again, from where the one before it ended.
        newest -= 1
    try:
        lines = (checkpoint / "offsets" / str(newest)).read_text().splitlines()
        offset = json.loads(lines[-1])
    except (OSError, ValueError, IndexError):
        return None
    return offset if isinstance(offset, dict) and SHARD in offset else None


def newest_batch(checkpoint: Path) -> int:
    """The number of the last batch that was begun; -1 when none was."""
    newest = _newest(checkpoint / "offsets")
    return -1 if newest is None else newest


def set_aside(checkpoint: Path) -> Path:
    """Move it away, so that the query begins anew; where it is now."""
    aside = checkpoint.with_name(f"{checkpoint.name}.set-aside-{time.time_ns()}")
    shutil.move(checkpoint, aside)
    return aside


def _newest(folder: Path) -> int | None:
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return None
    return max((int(name) for name in names if name.isdecimal()), default=None)
