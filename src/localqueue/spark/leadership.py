"""One query of a name at a time: a locked file in the run folder of its store.

The lock goes with the process that holds it, however that ends: nobody has to tidy up after one
that was killed, and the next one need not ask whether it still lives.
"""

from __future__ import annotations

import hashlib
import os
import time
import weakref
from pathlib import Path

from localqueue.errors import ConfigurationError, UnsupportedByStore
from localqueue.stores.protocol import QueueStore

try:
    import fcntl
except ImportError:  # Windows: who leads cannot be told from who is dead.
    fcntl = None  # type: ignore[assignment]

PATIENCE = 3.0
"""Seconds, by default. Spark ends the process of a stopped query without waiting for it."""
_LOOK_AGAIN = 0.02


class Leadership:
    """The right to be the query of this consumer group, until ``close`` or the end of the process.

    The store has been used by then, and is closed after it: until then its run folder stays.
    ConfigurationError when another process leads. A forked child has no part in it.
    """

    def __init__(self, store: QueueStore, name: str, *, patience: float = PATIENCE) -> None:
        folder = store.run_folder
        if folder is None or fcntl is None:
            raise UnsupportedByStore(
                "lease mode needs a store of which processes see who else is alive"
            )
        self.path = leader_file(folder, name)
        self._file: int | None = _lead(self.path, name, patience)
        _of_this_process.add(self)

    def close(self) -> None:
        """Let the next one lead. Idempotent."""
        _of_this_process.discard(self)
        file, self._file = self._file, None
        if file is not None:
            # While it is locked: the next one sees that what it waited for is gone.
            self.path.unlink(missing_ok=True)
            os.close(file)

    def leave_to_parent(self) -> None:
        """In a forked child: the parent's lock must not live on here."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def leader_file(folder: Path, name: str) -> Path:
    """What the leader keeps locked; it has the number of its process."""
    return folder / f"leads-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def _lead(path: Path, name: str, patience: float) -> int:
    deadline = time.monotonic() + patience
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_nlink:
                os.ftruncate(file, 0)
                os.pwrite(file, str(os.getpid()).encode(), 0)
                return file
        except BlockingIOError:
            if time.monotonic() >= deadline:
                leader = os.pread(file, 20, 0).decode(errors="replace") or "?"
                os.close(file)
                raise ConfigurationError(
                    f"the consumer group {name!r} belongs to another query (process {leader}); stop"
                    " that one, or give this one another: a stream by its option consumerGroup, a"
                    " pipeline by its name"
                ) from None
            time.sleep(_LOOK_AGAIN)
        except BaseException:
            os.close(file)
            raise
        os.close(file)


_of_this_process: weakref.WeakSet[Leadership] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for leadership in list(_of_this_process):
        leadership.leave_to_parent()
    _of_this_process.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
