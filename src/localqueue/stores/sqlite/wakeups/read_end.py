"""The ends at which one waits: of a FIFO with tokens, of the one with news, and of the bell."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

from localqueue.stores.sqlite.wakeups import fifo
from localqueue.stores.sqlite.wakeups.protocol import What

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_ALL = 65_536
"""What a FIFO holds."""
CLOSED = -1


class End:
    """A descriptor that is readable when there is something to hear, and how many use it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.users = 0

    def close(self) -> None:
        fd, self.fd = self.fd, CLOSED
        if fd != CLOSED:
            os.close(fd)


class Sleeper(Protocol):
    """A task that waits in its loop, at one end or several."""

    def is_asleep(self) -> bool: ...

    def take(self, end: ReadEnd) -> None:
        """A token of this end was read for it."""


Line = OrderedDict[Sleeper, None]


class ReadEnd(End):
    """An open FIFO: as long as somebody has it open, tokens are written to it.

    All waiters of a process share one, so that a thousand tasks that wait for one queue need one
    descriptor. Threads poll it; the tasks of a loop stand in line, and get one token each.
    """

    def __init__(self, key: tuple[What, int], path: str) -> None:
        super().__init__(fifo.open_to_wait(path))
        self.key = key
        self._path = path
        self._inode = fifo.inode_of(self.fd)
        self._lines: dict[AbstractEventLoop, Line] = {}

    def take(self) -> bool:
        """Read one token; False when another was faster."""
        return self._read(1)

    def drain(self) -> bool:
        """Read all tokens: what they told of, the next probe will see. False if there was none."""
        return self._read(_ALL)

    def is_in_place(self) -> bool:
        """Whether those who tell still find it: the file may have been removed or replaced."""
        return fifo.is_at(self._path, self._inode)

    def _read(self, most: int) -> bool:
        try:
            return bool(os.read(self.fd, most))
        except BlockingIOError:
            return False

    # --- tasks; in the thread of their loop ---------------------------------------------------
    def line_up(self, loop: AbstractEventLoop, sleeper: Sleeper) -> None:
        line = self._lines.get(loop)
        if line is None:
            line = self._lines[loop] = OrderedDict()
            loop.add_reader(self.fd, self._hand_out, line)
        line[sleeper] = None

    def step_out(self, loop: AbstractEventLoop, sleeper: Sleeper) -> None:
        line = self._lines[loop]
        del line[sleeper]
        if not line:
            del self._lines[loop]
            loop.remove_reader(self.fd)

    def _hand_out(self, line: Line) -> None:
        """One token for the first who sleeps; the loop comes again while there are more."""
        for sleeper in line:
            if sleeper.is_asleep():
                if self.take():
                    sleeper.take(self)
                return


class NewsEnd(End):
    """Hangs up when a queue is made, once and for good: the next news need a new one."""

    def __init__(self, path: str) -> None:
        super().__init__(fifo.open_for_news(path))
        self._path = path
        self._inode = fifo.inode_of(self.fd)

    def is_in_place(self) -> bool:
        return fifo.is_at(self._path, self._inode)


class Bell(End):
    """Rung once, when the store is closed: everybody hears it, and nobody reads it."""

    def __init__(self) -> None:
        read, self._write = os.pipe()
        super().__init__(read)

    def ring(self) -> None:
        if self.fd != CLOSED:
            os.write(self._write, fifo.TOKEN)

    def close(self) -> None:
        if self.fd != CLOSED:
            os.close(self._write)
        super().close()
