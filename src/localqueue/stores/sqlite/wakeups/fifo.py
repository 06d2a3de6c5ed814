"""The FIFOs beside a database: how each side opens one, and what may go wrong with the file."""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
from pathlib import Path

TOKEN = b"!"
HANGS_UP = sys.platform == "linux"
"""Whether every reader of a FIFO hears that a writer came and went. Elsewhere a reader may hear it
from the start, or not at all."""
_ATTEMPTS = 3
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)

Inode = tuple[int, int]


def open_to_wait(path: str) -> int:
    """The end of one who waits; made when there is none. OSError where FIFOs cannot be.

    It is opened for writing too, so that it never hangs up. For those who tell, a reader is
    somebody who waits.
    """
    return _open_or_make(path, os.O_RDWR)


def open_for_news(path: str) -> int:
    """The end of one who waits for a queue to be made: it hangs up when one is.

    A token would reach one waiter only, and the new queue may be another's.
    """
    if not HANGS_UP:
        raise OSError(errno.ENOTSUP, "this system does not tell every reader")
    return _open_or_make(path, os.O_RDONLY)


def open_to_tell(path: str) -> int | None:
    """The end of one who tells, whether or not somebody waits; None when nobody ever has."""
    try:
        # Without a reader the second one would be refused.
        reader = _open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        return _open(path, os.O_WRONLY)
    except OSError:
        return None
    finally:
        os.close(reader)


def is_watched(path: str) -> bool:
    """Whether somebody waits there."""
    try:
        os.close(_open(path, os.O_WRONLY))
    except OSError:
        return False
    return True


def hang_up(path: str) -> None:
    """Tell everybody who waits for news."""
    is_watched(path)


def inode_of(fd: int) -> Inode:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def is_at(path: str, inode: Inode) -> bool:
    """Whether the file at the path still is this one."""
    try:
        found = Path(path).stat()
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == inode


def write_token(fd: int) -> None:
    """BrokenPipeError when nobody waits, BlockingIOError when it is full of tokens."""
    if signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN:
        # As Python has it from its start.
        os.write(fd, TOKEN)
    else:
        _write_shielded(fd)


def _write_shielded(fd: int) -> None:
    """A program that ends with its pipe must not end because nobody waits for a message."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])
    try:
        pending = signal.SIGPIPE in signal.sigpending()
        try:
            os.write(fd, TOKEN)
        finally:
            if not pending and signal.SIGPIPE in signal.sigpending():
                signal.sigwait([signal.SIGPIPE])
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _open_or_make(path: str, mode: int) -> int:
    """The folder is made by who opens the database, and goes with its last user."""
    for _ in range(_ATTEMPTS):
        try:
            return _open(path, mode)
        except FileNotFoundError:
            try:
                os.mkfifo(path, 0o600)
            except FileExistsError:
                # Somebody else was faster.
                pass
    raise FileNotFoundError(errno.ENOENT, "removed as soon as it was made", path)


def _open(path: str, mode: int) -> int:
    fd = os.open(path, mode | _FLAGS)
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ENOTSUP, "not a FIFO", path)
    return fd
