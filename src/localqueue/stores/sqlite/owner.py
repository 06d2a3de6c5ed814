"""Whose a daybook is: the owner's of its database, also where root makes it.

SQLite does the same with its -wal. Otherwise who owns the database could not open it any more.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)


def make_file(path: Path, database: Path) -> int:
    """A new file, open; FileExistsError when there is one.

    What is there already is given to nobody: the owner of the folder decides what that is.
    """
    descriptor = os.open(path, _NEW, 0o600)
    _give(descriptor, database)
    return descriptor


def may_be_read_like(descriptor: int, database: Path) -> None:
    """What belongs to the messages is for everybody whom the database is for."""
    with contextlib.suppress(OSError, AttributeError):
        os.fchmod(descriptor, stat.S_IMODE(database.stat().st_mode) & 0o666)


def _give(descriptor: int, database: Path) -> None:
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # Where even root may not do that, as in some containers, it stays as it is.
        with contextlib.suppress(OSError):
            found = database.stat()
            os.fchown(descriptor, found.st_uid, found.st_gid)
