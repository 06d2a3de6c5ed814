"""The end that tokens are read from: one per FIFO and process, shared by all its waiters."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import Protocol

from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.wakeups import fifo
from localqueue.stores.sqlite.wakeups.protocol import What

_ALL = 65_536
"""What a FIFO holds."""


class Sleeper(Protocol):
    """A task that waits in its loop, for one FIFO or several."""

    def is_asleep(self) -> bool: ...

    def wake(self, end: ReadEnd) -> None:
        """A token of this end was read for it."""


class ReadEnd:
    """An open FIFO. As long as it is open, tokens are written to it.

    Shared, so that a thousand tasks that wait for one queue need one descriptor. Threads poll it;
    the tasks of a loop stand in line, and its reader reads a token for each.
    """

    def __init__(self, companions: Companions, what: What, number: int) -> None:
        self.number = number
        self.users = 0
        self._path = companions.fifo(what, number)
        self.fd = fifo.open_to_wait(companions, what, number)
        self._inode = fifo.inode_of(self.fd)
        self._lines: dict[asyncio.AbstractEventLoop, deque[Sleeper]] = {}

    def take(self) -> bool:
        """Read one token; False when another was faster."""
        try:
            return bool(os.read(self.fd, 1))
        except BlockingIOError:
            return False

    def drain(self) -> bool:
        """Read all tokens: what they told of, the next probe will see. False if there was none."""
        try:
            return bool(os.read(self.fd, _ALL))
        except BlockingIOError:
            return False

    def is_in_place(self) -> bool:
        """Whether those who tell still find it: the file may have been removed or replaced."""
        return fifo.is_at(self._path, self._inode)

    def close(self) -> None:
        os.close(self.fd)

    # --- tasks; in the thread of their loop ---------------------------------------------------
    def line_up(self, loop: asyncio.AbstractEventLoop, sleeper: Sleeper) -> None:
        line = self._lines.get(loop)
        if line is None:
            line = self._lines[loop] = deque()
            loop.add_reader(self.fd, self._readable, line)
        line.append(sleeper)

    def step_out(self, loop: asyncio.AbstractEventLoop, sleeper: Sleeper) -> None:
        line = self._lines[loop]
        line.remove(sleeper)
        if not line:
            del self._lines[loop]
            loop.remove_reader(self.fd)

    def _readable(self, line: deque[Sleeper]) -> None:
        """One token for the first who sleeps; the loop comes again while there are more."""
        for sleeper in line:
            if sleeper.is_asleep():
                if self.take():
                    sleeper.wake(self)
                return
