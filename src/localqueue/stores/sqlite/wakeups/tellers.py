"""The ends that tokens are written to: kept open, so that telling takes a microsecond or two."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.view import NEW_QUEUES
from localqueue.stores.sqlite.wakeups import fifo
from localqueue.stores.sqlite.wakeups.protocol import What

MOST_OPEN = 64
CHECK_AGAIN = 1.0
"""How often an end without readers is compared with the file at its path."""


@dataclass(slots=True)
class _End:
    fd: int
    inode: fifo.Inode
    checked: float


class Tellers:
    """Writes tokens. Whatever goes wrong is silent: who waits looks by itself once a second."""

    def __init__(self, companions: Companions) -> None:
        self._companions = companions
        self._ends: OrderedDict[tuple[What, int], _End] = OrderedDict()
        self._closed = False
        # Held during a fork too. Reentrant: a signal handler may put a message.
        self.lock = threading.RLock()

    def tell(self, what: What, number: int) -> None:
        """One token for one waiter; news of a new queue for all who wait for some."""
        with self.lock, contextlib.suppress(OSError):
            if number == NEW_QUEUES:
                fifo.hang_up(self._companions.fifo(what, number))
            else:
                self._write(what, number)

    def close(self) -> None:
        """Keep none open; telling still works."""
        with self.lock:
            self._closed = True
            self._close_all()

    def after_fork_in_child(self) -> None:
        self.lock = threading.RLock()
        self._close_all()

    def __del__(self) -> None:
        self._close_all()

    def _write(self, what: What, number: int) -> None:
        key = (what, number)
        end = self._ends.get(key) or self._open(key)
        if end is None:
            return
        try:
            fifo.write_token(end.fd)
        except BlockingIOError:
            # Full of tokens: everybody is told already.
            pass
        except BrokenPipeError:
            # Nobody waits; or they wait at another file of the same name.
            if self._is_replaced(key, end) and (new := self._open(key)) is not None:
                fifo.write_token(new.fd)
        if self._closed:
            self._close_all()
        elif key in self._ends:
            self._ends.move_to_end(key)

    def _open(self, key: tuple[What, int]) -> _End | None:
        path = self._companions.fifo(*key)
        fd = fifo.open_to_tell(path)
        if fd is None:
            return None
        end = self._ends[key] = _End(fd, fifo.inode_of(fd), time.monotonic())
        if len(self._ends) > MOST_OPEN:
            _, oldest = self._ends.popitem(last=False)
            os.close(oldest.fd)
        return end

    def _is_replaced(self, key: tuple[What, int], end: _End) -> bool:
        """Asked once a second at most: most puts find nobody waiting."""
        now = time.monotonic()
        if now - end.checked < CHECK_AGAIN:
            return False
        end.checked = now
        if fifo.is_at(self._companions.fifo(*key), end.inode):
            return False
        os.close(self._ends.pop(key).fd)
        return True

    def _close_all(self) -> None:
        while self._ends:
            _, end = self._ends.popitem()
            os.close(end.fd)
