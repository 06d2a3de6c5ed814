"""The ends that tokens are written to: kept open, so that telling takes a microsecond or two."""

from __future__ import annotations

import os
import select
import threading
import time

from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.view import NEW_QUEUES
from localqueue.stores.sqlite.wakeups import fifo
from localqueue.stores.sqlite.wakeups.protocol import What

MOST_OPEN = 64
CHECK_AGAIN = 1.0
"""How often an end without readers is compared with the file at its path."""

Key = tuple[What, int]


class Tellers:
    """Writes tokens. Whatever goes wrong is silent: who waits looks by itself once a second."""

    def __init__(self, companions: Companions) -> None:
        self._companions = companions
        self._ends: dict[Key, _WriteEnd] = {}
        self._closed = False
        # Held during a fork too. Reentrant: a signal handler may put a message.
        self.lock = threading.RLock()

    def tell(self, what: What, number: int) -> None:
        """One token for one waiter; news of a new queue for all who wait for some."""
        key = (what, number)
        if key not in self._ends and number != NEW_QUEUES and not self._is_there(key):
            # Most queues never have a waiter.
            return
        with self.lock:
            try:
                if number == NEW_QUEUES:
                    fifo.hang_up(self._companions.fifo(*key))
                else:
                    self._write(key)
            except OSError:
                return

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

    def _write(self, key: Key) -> None:
        end = self._ends.get(key) or self._open(key)
        if end is None:
            return
        watched = end.has_readers()
        if not watched and self._is_replaced(key, end):
            os.close(self._ends.pop(key).fd)
            end = self._open(key)
            watched = end is not None
        try:
            if watched and end is not None:
                fifo.write_token(end.fd)
        finally:
            if self._closed:
                self._close_all()

    def _open(self, key: Key) -> _WriteEnd | None:
        # Asking is cheaper than an error.
        fd = fifo.open_to_tell(self._companions.fifo(*key)) if self._is_there(key) else None
        if fd is None:
            return None
        end = self._ends[key] = _WriteEnd(fd)
        if len(self._ends) > MOST_OPEN:
            os.close(self._ends.pop(next(iter(self._ends))).fd)
        return end

    def _is_there(self, key: Key) -> bool:
        return os.access(self._companions.fifo(*key), os.F_OK)

    def _is_replaced(self, key: Key, end: _WriteEnd) -> bool:
        """Nobody waits here: perhaps they wait at another file of the same name.

        Asked once a second at most, since most puts find nobody waiting.
        """
        now = time.monotonic()
        if now - end.checked < CHECK_AGAIN:
            return False
        end.checked = now
        return not fifo.is_at(self._companions.fifo(*key), end.inode)

    def _close_all(self) -> None:
        while self._ends:
            _, end = self._ends.popitem()
            os.close(end.fd)


class _WriteEnd:
    """One that is kept open."""

    __slots__ = ("_poll", "checked", "fd", "inode")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.inode = fifo.inode_of(fd)
        self.checked = time.monotonic()
        self._poll = select.poll()
        self._poll.register(fd, 0)

    def has_readers(self) -> bool:
        """Whether somebody waits. Where the system does not say, the write finds out."""
        return not self._poll.poll(0)
