"""A small process beside a worker: it holds the worker's leases while a handler holds the GIL.

Run as a file, with nothing but the standard library: it starts in the time and memory of a bare
interpreter, and loads the package only when it has something to do, which is nearly never. It ends
when its standard input does, or when it sees that the worker is gone.
"""

from __future__ import annotations

import marshal
import os
import select
import struct
import sys
import time
from typing import Any, TypedDict

BEAT = struct.Struct("=d")
"""A sign of life begins with the time of the last heartbeat, of ``time.monotonic()``."""
SHORT = 10.0
"""With leases shorter than this the package is loaded ahead: it takes a part of a second."""


class Order(TypedDict):
    """What the keeper is told once, by its standard input."""

    sign: str
    """The worker's sign of life."""
    pid: int
    liveness: str
    lease_timeout: float
    store: bytes
    """The worker's store, pickled."""
    offset: float
    """From the steady clock to store time."""
    path: list[str]
    """Where the worker imports from."""


class Keeper:
    """Watches the heartbeat of one worker."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._lease = order["lease_timeout"]
        self._kept = 0.0
        self._store: Any = None

    def watch(self) -> None:
        """Until the worker ends."""
        if self._lease < SHORT:
            self._load()
        try:
            while not select.select([0], [], [], self._lease / 8)[0]:
                beat = last_beat(self._order["sign"])
                if beat is None:
                    return
                since = time.monotonic() - max(beat, self._kept)
                if since >= self._lease / 2 and is_running(self._order["pid"]):
                    self._hold()
        finally:
            if self._store is not None:
                self._store.close()

    def _hold(self) -> None:
        """The worker lives and does not come to its heartbeat: do it in its place."""
        self._load()
        order = self._order
        try:
            self._store.extend_of(order["liveness"], timeout=self._lease, now=self._now)
            self._kept = time.monotonic()
        except Exception:
            # A store that is busy or broken: the next round tries again, and a worker that has lost
            # its leases will hear that when it extends them.
            return

    def _load(self) -> None:
        if self._store is None:
            sys.path[:] = self._order["path"]
            import pickle

            from localqueue.clock import SYSTEM_CLOCK

            self._steady = SYSTEM_CLOCK.steady
            self._store = pickle.loads(self._order["store"])

    def _now(self) -> float:
        return self._steady() + self._order["offset"]


def last_beat(sign: str) -> float | None:
    """When the worker last extended its leases itself; None when it is dead or done."""
    import fcntl

    try:
        file = os.open(sign, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        found: float = BEAT.unpack(os.pread(file, BEAT.size, 0))[0]
        return found
    finally:
        os.close(file)
    return None


def is_running(pid: int) -> bool:
    """Whether the process is neither stopped nor dead; False as well where nobody can say."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  without pathlib's import
            state = file.read().rpartition(b")")[2].split()[0].decode()
    except FileNotFoundError:
        import subprocess

        told = subprocess.run(
            ["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        state = told.stdout.strip()
    return state[:1] not in ("", "T", "t", "Z", "X")


def main() -> None:
    import signal

    # Whoever ends the worker ends its keeper with it; a drain may take a while.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    order = bytearray()
    size = int.from_bytes(os.read(0, 4), "big")
    while size and len(order) < size:
        part = os.read(0, size - len(order))
        if not part:
            return
        order += part
    if size:
        Keeper(marshal.loads(order)).watch()


if __name__ == "__main__":
    main()
