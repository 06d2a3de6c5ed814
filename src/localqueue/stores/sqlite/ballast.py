"""Space put aside, so that a full disk can be drained: removing messages needs room as well."""

from __future__ import annotations

import os
import time
from pathlib import Path

SIZE = 16 * 1024 * 1024
LOOK_AGAIN = 1.0
"""How often a full disk is looked at again."""


class Ballast:
    """A file of that size beside the database, given up when the disk is full."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next_look = 0.0

    def make(self) -> bool:
        """Whether it is there. It is not made from the last of the disk."""
        try:
            if self._path.stat().st_size >= SIZE:
                return True
        except FileNotFoundError:
            pass
        if not hasattr(os, "posix_fallocate"):
            return True
        if _free(self._path.parent) < 2 * SIZE:
            return False
        return self._allocate()

    def is_time_to_look(self) -> bool:
        """A full disk is not looked at with every call."""
        if time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + LOOK_AGAIN
        return True

    def give_up(self) -> None:
        self._path.unlink(missing_ok=True)
        self._next_look = time.monotonic() + LOOK_AGAIN

    def _allocate(self) -> bool:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path, flags, 0o600)
        except OSError:
            return False
        try:
            os.posix_fallocate(descriptor, 0, SIZE)
        except OSError:
            self._path.unlink(missing_ok=True)
            return False
        finally:
            os.close(descriptor)
        return True


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
