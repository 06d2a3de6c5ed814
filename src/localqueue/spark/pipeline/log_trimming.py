"""A table's log is kept short: whoever opens the table or commits to it looks through all of it.

A commit is needed by those who want the table as it is now until a checkpoint has it. Some more are
kept, for those who look at earlier versions or follow the table commit by commit.
"""

from __future__ import annotations

import re
from contextlib import suppress

from deltalake.exceptions import DeltaError

from localqueue.spark.pipeline.location import Location

KEPT = 100
"""Commits that stay at least."""
EVERY = 50
"""Commits between two looks at what can go."""
_NUMBERED = re.compile(r"(\d{20})\.").match
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint\.parquet").fullmatch


class LogTrimmer:
    """For one who commits to a table; several may do so at once."""

    def __init__(self, location: Location, version: int) -> None:
        self._log = location / "_delta_log"
        self._next = version - version % EVERY + EVERY

    def committed(self, version: int) -> None:
        """Let go of old commits from time to time. What fails is done by the next one."""
        if version >= self._next:
            self._next = version + EVERY
            with suppress(OSError, DeltaError):
                self._trim(version - KEPT)

    def _trim(self, newest: int) -> None:
        """Those before the last checkpoint that is not newer than this."""
        numbered = sorted(
            (int(found[1]), name)
            for name in self._log.names()
            if (found := _NUMBERED(name)) is not None
        )
        checkpoints = [n for n, name in numbered if n <= newest and _CHECKPOINT(name)]
        if checkpoints:
            # The oldest first: whatever ends in the middle leaves no gap.
            for n, name in numbered:
                if n < checkpoints[-1]:
                    self._log.delete(name)
