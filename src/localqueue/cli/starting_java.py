"""Around the start of Java: what it inherits from a command, for its whole life."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from localqueue.cli.output import told


@contextmanager
def quiet_java() -> Iterator[None]:
    """What Java writes to stderr is not shown, unless ``--debug``.

    A process that is started inside has no stderr for its whole life; this one has it back.
    """
    if told.debug:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


class _Starting:
    """Whether processes that are started now are to ignore SIGTERM."""

    deaf = False
    is_watched = False


@contextmanager
def deaf_java() -> Iterator[None]:
    """Java ignores SIGTERM, as PySpark lets it ignore Ctrl-C. It ends when this process does.

    Who stops a service sends it to every process of it. Java would be gone at once, and with it the
    batch that is being written. This process hears it all the time.
    """
    if not _Starting.is_watched and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_become_deaf)
        _Starting.is_watched = True
    _Starting.deaf = True
    try:
        yield
    finally:
        _Starting.deaf = False


def _become_deaf() -> None:
    if _Starting.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
