"""A fair lock between processes: two flocks, of which the first is the place in the queue.

Who waits for the lock holds the turn, so nobody can come before it. Who has just had its turn may
take the lock again without queueing for two milliseconds: handing it over for every transaction
would cost more than the transactions. SQLite's own waiting is not fair: it starves processes for
seconds.
"""

from __future__ import annotations

import mmap
import os
import secrets
import threading
import time
from pathlib import Path
from typing import Protocol

from localqueue.errors import StoreBusy

try:
    import fcntl
except ImportError:  # Windows: SQLite's own lock has to do.
    fcntl = None  # type: ignore[assignment]

_AT_ONCE = 0 if fcntl is None else fcntl.LOCK_EX | fcntl.LOCK_NB
SLICE = 0.002
SYNC_FAILED, DISK_FULL = range(2)
"""What the holder of the lock has to know: bytes of the lock file."""
_CLOSED = -1
_NO_MARKS = b"\0\0"
_NAME_LENGTH = 8
"""After the marks stands the name of the one who held the lock last."""
_LENGTH = len(_NO_MARKS) + _NAME_LENGTH
_WAITED_FOR = _LENGTH
"""After that one byte: whether anybody has ever waited for a queue of this file."""
_WHOLE = _LENGTH + 1


class Lock(Protocol):
    """What keeps the transactions of several processes apart."""

    waits: int
    longest_wait: float
    was_ours: bool
    """Whether nobody else has held the lock since we did; known after ``marks``."""

    def acquire(self, deadline: float) -> None:
        """StoreBusy when others hold it until the deadline, a moment of ``time.monotonic()``."""

    def release(self) -> None: ...

    def marks(self) -> bytes:
        """The marks that are set; empty when there is none, which is nearly always."""

    def is_marked(self, which: int) -> bool:
        """One of them, also for who does not hold the lock."""

    def is_waited_for(self) -> bool:
        """Whether there may be somebody to wake, in whatever process; see ``tell_of_waiters``."""

    def mark(self, which: int, on: bool) -> None: ...

    def is_in_place(self) -> bool:
        """Whether who comes now takes the same lock: its file is still the one at its path."""

    def close(self) -> None: ...


class Turnstile:
    """For one thread at a time."""

    def __init__(self, lock: Path, turn: Path) -> None:
        self._lock = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._turn = os.open(turn, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except BaseException:
            os.close(self._lock)
            raise
        self._path = str(lock)
        found = os.fstat(self._lock)
        self._file = found.st_dev, found.st_ino
        if found.st_size == 0:
            # Now: on a full disk there is no room for a mark. Whoever is faster writes the same.
            os.pwrite(self._lock, _NO_MARKS + bytes(_NAME_LENGTH), 0)
        if found.st_size < _WHOLE:
            # Not written: one who waits may have told of it meanwhile.
            os.ftruncate(self._lock, _WHOLE)
        self._map = mmap.mmap(self._lock, _WHOLE)
        """What stands in the file, without a call to read it."""
        self._own_until = 0.0
        self._queueing: _Queueing | None = None
        self._name = secrets.token_bytes(_NAME_LENGTH)
        self._usual = _NO_MARKS + self._name
        """What stands in the file when nobody else was here and nothing is marked."""
        self.was_ours = False
        self.waits = 0
        self.longest_wait = 0.0

    def acquire(self, deadline: float) -> None:
        if self._queueing is not None and self._queueing.is_waiting():
            # For one who gave up, with our descriptors: what it gets is ours.
            self._wait(deadline)
        elif time.monotonic() < self._own_until and _try(self._lock):
            return
        elif not self._try_in_turn():
            self._wait(deadline)
        self._own_until = time.monotonic() + SLICE

    def release(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def marks(self) -> bytes:
        found = self._map[:_LENGTH]
        if found == self._usual:
            self.was_ours = True
            return b""
        marks, name = found[: len(_NO_MARKS)], found[len(_NO_MARKS) :]
        self.was_ours = name == self._name
        if not self.was_ours:
            os.pwrite(self._lock, self._name, len(_NO_MARKS))
        return b"" if marks == _NO_MARKS else marks

    def is_marked(self, which: int) -> bool:
        return os.pread(self._lock, 1, which) == b"\1"

    def is_waited_for(self) -> bool:
        return self._map[_WAITED_FOR] != 0

    def mark(self, which: int, on: bool) -> None:
        os.pwrite(self._lock, b"\1" if on else b"\0", which)

    def is_in_place(self) -> bool:
        try:
            found = os.stat(self._path)  # noqa: PTH116  # half the time
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            # Who gave up its rights may not look; that says nothing.
            return True
        return (found.st_dev, found.st_ino) == self._file

    def close(self) -> None:
        lock, turn = self._lock, self._turn
        self._lock = self._turn = _CLOSED
        self._map.close()
        if self._queueing is None or self._queueing.stop():
            os.close(lock)
            os.close(turn)

    def _try_in_turn(self) -> bool:
        if not _try(self._turn):
            return False
        try:
            return _try(self._lock)
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    def _wait(self, deadline: float) -> None:
        began = time.monotonic()
        if self._queueing is None:
            self._queueing = _Queueing(self._lock, self._turn)
        granted = self._queueing.wait(deadline - began)
        waited = time.monotonic() - began
        self.waits += 1
        self.longest_wait = max(self.longest_wait, waited)
        if not granted:
            raise StoreBusy(
                f"other processes held the lock of the file for {waited:.1f} s, until the timeout"
            )


class NoTurnstile:
    """Where there is no flock: SQLite's busy timeout is all there is."""

    waits = 0
    longest_wait = 0.0
    was_ours = False

    def acquire(self, deadline: float) -> None: ...

    def release(self) -> None: ...

    def marks(self) -> bytes:
        return b""

    def is_marked(self, which: int) -> bool:
        return False

    def is_waited_for(self) -> bool:
        return True

    def mark(self, which: int, on: bool) -> None: ...

    def is_in_place(self) -> bool:
        return True

    def close(self) -> None: ...


class _Queueing:
    """A thread that waits for the lock, because flock knows no timeout.

    It may be granted the lock when nobody wants it any more: then it lets go at once.
    """

    def __init__(self, lock: int, turn: int) -> None:
        self._lock = lock
        self._turn = turn
        self._changed = threading.Condition()
        self._wanted = False
        self._granted = False
        self._stopped = False
        self._idle = True
        threading.Thread(target=self._run, name="localqueue-lock", daemon=True).start()

    def is_waiting(self) -> bool:
        with self._changed:
            return not self._idle

    def wait(self, timeout: float) -> bool:
        """Whether the lock was granted in time."""
        with self._changed:
            self._wanted, self._granted = True, False
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: self._granted, max(0.0, timeout))
            except BaseException:
                if self._granted:
                    fcntl.flock(self._lock, fcntl.LOCK_UN)
                raise
            finally:
                self._wanted = False
            return self._granted

    def stop(self) -> bool:
        """End the thread. False when it is still in flock: it closes the descriptors then."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            if not self._idle:
                _left_behind.update((self._lock, self._turn))
            return self._idle

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._stopped)
                if self._stopped:
                    return
                self._idle = False
            fcntl.flock(self._turn, fcntl.LOCK_EX)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            fcntl.flock(self._turn, fcntl.LOCK_UN)
            with self._changed:
                self._idle = True
                if self._stopped:
                    self._close()
                    return
                if self._wanted:
                    self._wanted, self._granted = False, True
                    self._changed.notify_all()
                else:
                    fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _close(self) -> None:
        for descriptor in (self._lock, self._turn):
            # A child may have it too: closing alone would leave the lock with it.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)
            _left_behind.discard(descriptor)


_left_behind: set[int] = set()
"""Descriptors that a thread of this process still waits with."""


def _after_fork_in_child() -> None:
    while _left_behind:
        os.close(_left_behind.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def make_lock(lock: Path, turn: Path) -> Lock:
    return NoTurnstile() if fcntl is None else Turnstile(lock, turn)


def tell_of_waiters(lock: Path) -> None:
    """From now on whoever changes something looks whether somebody waits for it.

    To look for a waiter costs as much as a twentieth of a put, and most files never have one.
    """
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(descriptor, b"\1", _WAITED_FOR)
    finally:
        os.close(descriptor)


def has_marks(lock: Path) -> bool:
    """For who has not opened it, while nobody else does."""
    try:
        found = lock.read_bytes()
    except FileNotFoundError:
        return False
    return not _NO_MARKS.startswith(found[: len(_NO_MARKS)])


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, _AT_ONCE)
    except BlockingIOError:
        return False
    return True
