"""Signs of life: a locked file per worker that says what it runs, and what becomes of the dead.

The lock goes with the process, however that ends. A file whose lock is free is of a worker that was
killed: whoever finds it ends that worker's leases, and charges only what it was running.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import re
import secrets
import socket
import time
import weakref
from pathlib import Path
from typing import Self

from localqueue.clock import Now
from localqueue.stores.protocol import SIGN_OF_LIFE, QueueStore
from localqueue.stores.signs_of_life import FIRST_SLOT, LONGEST_ID, SLOT, running_in
from localqueue.workers.keeper import BEAT

try:
    import fcntl
except ImportError:  # Windows: there is no sign of life, and leases end by expiry.
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("localqueue.workers")


class Liveness:
    """The sign of life of one worker, as long as its process lives or until ``close``.

    ``name`` is its liveness name, for its leases. ``path`` is the file, None where there is none:
    without a folder, on a full disk, or where files cannot be locked. Everything else is the same
    then, but nobody sees it. A forked child has no part in it.
    """

    _file: int | None = None

    def __init__(self, folder: Path | None, name: str | None = None, *, slots: int = 1) -> None:
        self.name = new_name() if name is None else name
        self.path: Path | None = None
        self._size = size = FIRST_SLOT + SLOT * slots
        if folder is not None and fcntl is not None:
            # A full disk can still be drained, without a sign of life.
            with contextlib.suppress(OSError):
                self._file, self.path = _make_file(folder, self.name, size)
        self._map = mmap.mmap(-1 if self._file is None else self._file, size)
        self.beat()
        if self._file is not None:
            _of_this_process.add(self)

    def begin(self, slot: int, message_id: str) -> None:
        """This message runs in this slot: if the process dies now, it is charged with the crash.

        An id of more than 255 bytes is not remembered.
        """
        at = FIRST_SLOT + SLOT * slot
        text = message_id.encode()
        length = len(text)
        if length > LONGEST_ID:
            length, text = 0, b""
        map_ = self._map
        # The length last: there is no moment when half an id could be read.
        map_[at] = 0
        map_[at + 1 : at + 1 + length] = text
        map_[at] = length

    def end(self, slot: int) -> None:
        """Nothing runs in this slot."""
        self._map[FIRST_SLOT + SLOT * slot] = 0

    def beat(self) -> None:
        """The leases were extended just now."""
        BEAT.pack_into(self._map, 0, time.monotonic())

    def close(self, *, keep: bool = False) -> None:
        """The worker has ended and holds no leases any more: take its sign away. Idempotent.

        With ``keep`` it may still hold some: the sign stays, so that others end them, and none is
        charged.
        """
        _of_this_process.discard(self)
        file, self._file = self._file, None
        if file is None or self.path is None:
            return
        if keep:
            for at in range(FIRST_SLOT, self._size, SLOT):
                self._map[at] = 0
        else:
            self.path.unlink(missing_ok=True)
        # The map has a descriptor of its own, and stays for handlers that nobody waits for.
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)
        # The folder goes with the last user of the store, unless that went before; not with a sign.
        with contextlib.suppress(OSError):
            self.path.parent.rmdir()

    def leave_to_parent(self) -> None:
        """In a forked child: the parent's lock must not live on here."""
        file, self._file, self.path = self._file, None, None
        if file is not None:
            os.close(file)
            self._map.close()
            self._map = mmap.mmap(-1, self._size)

    def __del__(self) -> None:
        # A worker that is forgotten is dead: others end its leases.
        if self._file is not None:
            os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Liveness({self.name!r})"


def new_name() -> str:
    """A liveness name that nobody else has."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:64]
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


def bury_the_dead(store: QueueStore, folder: Path | None, now: Now) -> int:
    """End the leases of all workers in this folder whose processes are gone; how many leases.

    Cheap while everybody lives: a look at each file, none at the store. What the store raises is
    raised, and the next look tries again. A file that cannot be read is passed over: the leases of
    that worker end by expiry.
    """
    ended = 0
    for path in _signs(folder):
        try:
            ended += _bury(store, path, now)
        except OSError as error:
            _say_once(path, error)
    return ended


def _bury(store: QueueStore, path: Path, now: Now) -> int:
    file = _take(path)
    if file is None:
        return 0
    try:
        name = path.name.removeprefix(SIGN_OF_LIFE)
        running = running_in(file)
        ended = store.end_leases_of(name, running, now=now)
        path.unlink(missing_ok=True)
        if ended:
            log.warning(
                "the worker %s has died: %d messages that it had come back, or are dead letters at"
                " the crash limit of their queue; charged are those that it was running: %s",
                name,
                ended,
                ", ".join(sorted(running)) or "none",
            )
        return ended
    finally:
        os.close(file)


def _say_once(path: Path, error: OSError) -> None:
    if path.name not in _told and len(_told) < _MOST_TOLD:
        _told.add(path.name)
        log.warning("the sign of life %s cannot be read: %s", path, error)


def _make_file(folder: Path, name: str, size: int) -> tuple[int, Path]:
    """The file, locked before it gets the name by which others know it."""
    path, unborn = folder / f"{SIGN_OF_LIFE}{name}", folder / f"new-{name}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    while True:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        try:
            file = os.open(unborn, flags, 0o600)
        except FileNotFoundError:
            # Its last user has removed the folder in between.
            continue
        try:
            # Written, not only sized: a hole that is mapped kills who writes on a full disk.
            os.write(file, bytes(size))
            fcntl.flock(file, fcntl.LOCK_EX)
            unborn.rename(path)
            return file, path
        except FileNotFoundError:
            os.close(file)
        except BaseException:
            unborn.unlink(missing_ok=True)
            os.close(file)
            raise


def _signs(folder: Path | None) -> list[Path]:
    if folder is None or fcntl is None:
        return []
    try:
        return [path for path in folder.iterdir() if path.name.startswith(SIGN_OF_LIFE)]
    except OSError:
        # There is none, or no descriptor is free to read it with: the next look may find more.
        return []


def _take(path: Path) -> int | None:
    """The file, locked, if its worker is dead and nobody else buries it."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file).st_nlink:
            return file
    except BlockingIOError:
        pass
    except BaseException:
        os.close(file)
        raise
    os.close(file)
    return None


_of_this_process: weakref.WeakSet[Liveness] = weakref.WeakSet()
_told: set[str] = set()
"""The signs that could not be read, each complained of once."""
_MOST_TOLD = 1000


def _after_fork_in_child() -> None:
    for liveness in list(_of_this_process):
        liveness.leave_to_parent()
    _of_this_process.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
