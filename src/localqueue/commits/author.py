"""Which process wrote something, and whether it is still there to finish it."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from localqueue.clock import SYSTEM_CLOCK

_UNTOLD = "?"
"""Where the system does not tell when a process started."""
_ENDED = ("Z", "X")


def this_process() -> str:
    """The boot of the host, the process's number, and when it started: never the same again."""
    return _name(os.getpid())


def is_gone(author: str) -> bool:
    """Whether that process has ended; False when it cannot be known, as on another host."""
    boot, pid, started = author.rsplit(" ", 2)
    if boot != SYSTEM_CLOCK.boot_id():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it exists, and belongs to somebody else
    state, now = _state_and_start(int(pid))
    return state in _ENDED or (now != started and _UNTOLD not in (now, started))


@cache
def _name(pid: int) -> str:
    return f"{SYSTEM_CLOCK.boot_id()} {pid} {_state_and_start(pid)[1]}"


def _state_and_start(pid: int) -> tuple[str, str]:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return _UNTOLD, _UNTOLD
    # The name of the program stands in brackets and may hold anything.
    fields = stat.rpartition(")")[2].split()
    return fields[0], fields[19]
