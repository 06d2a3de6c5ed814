"""The files by which the workers of a host say what they run: how they are read.

A sign begins with what the worker's keeper needs; then comes a slot for each of its runners.
"""

from __future__ import annotations

import os
from pathlib import Path

from localqueue.stores.protocol import SIGN_OF_LIFE

FIRST_SLOT = 64
SLOT = 256
LONGEST_ID = SLOT - 1
"""A slot is the length of an id, and the id; 0 says that nothing runs."""


def running_in(file: int) -> frozenset[str]:
    """The ids of the messages that run, or ran when the worker died. What is torn is no id."""
    content = os.pread(file, os.fstat(file).st_size, 0)
    slots = range(FIRST_SLOT, len(content), SLOT)
    return frozenset(
        content[at + 1 : at + 1 + content[at]].decode(errors="replace")
        for at in slots
        if content[at]
    )


def running_under(folder: Path | None, liveness: str) -> frozenset[str] | None:
    """What the worker of this liveness name says that it runs; None when it says nothing."""
    if folder is None or "/" in liveness or "\0" in liveness:
        return None
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        file = os.open(folder / f"{SIGN_OF_LIFE}{liveness}", flags)
        try:
            return running_in(file)
        finally:
            os.close(file)
    except OSError:
        return None
