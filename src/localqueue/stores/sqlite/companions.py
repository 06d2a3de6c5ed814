"""The files beside a database, in a folder that goes with its last user: locks, FIFOs, ballast."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from localqueue.stores.protocol import SIGN_OF_LIFE

try:
    import fcntl
except ImportError:  # Windows, where nobody needs these files.
    fcntl = None  # type: ignore[assignment]


class Companions:
    """Where they are, and who uses them."""

    def __init__(self, database: Path) -> None:
        # Beside the real file, as SQLite does with its -wal: two names of it share one lock.
        self.database = Path(os.path.realpath(database))
        self.wal = self.database.with_name(f"{self.database.name}-wal")
        self.daybook = self.database.with_name(f"{self.database.name}-daybook")
        self.folder = self.database.with_name(f"{self.database.name}-run")
        self.users = self.folder / "users"
        self.lock = self.folder / "lock"
        self.turn = self.folder / "turn"
        self.ballast = self.folder / "ballast"
        self.no_notes = self.folder / "no-notes"
        self._fifos: dict[tuple[str, int], str] = {}

    def fifo(self, what: str, queue: int) -> str:
        """``ready`` or ``room`` of a queue, by its row number; 0 is told of new queues."""
        path = self._fifos.get((what, queue))
        if path is None:
            # Asked for with every wake-up: joining paths takes longer than to open one.
            path = self._fifos[what, queue] = str(self.folder / f"{what}-{queue}")
        return path

    def enter(self) -> int:
        """Make the folder and be one of its users; a descriptor for ``leave``."""
        while True:
            user = self._open_users()
            if user is not None:
                return user

    def _open_users(self) -> int | None:
        """None when somebody tidied up in between."""
        with contextlib.suppress(FileExistsError):
            self.folder.mkdir(mode=0o700)
        if self.folder.is_symlink():
            # Whoever put it there would have us write, and later remove, what is behind it.
            raise NotADirectoryError(f"{self.folder} is a link: remove it")
        try:
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
            user = os.open(self.users, flags, 0o600)
        except FileNotFoundError:
            return None
        if fcntl is None:
            return user
        # Waits only for one who tidies up; what that one removed is nobody's any more.
        fcntl.flock(user, fcntl.LOCK_SH)
        with contextlib.suppress(FileNotFoundError):
            here, there = os.fstat(user), self.users.stat()
            if (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino):
                return user
        os.close(user)
        return None

    def be_alone(self, user: int) -> bool:
        """Whether nobody else is there; whoever comes then waits until ``leave``.

        Who asks is on its way out: after a no it may count as gone already.
        """
        if fcntl is None:
            return False
        try:
            fcntl.flock(user, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def leave(self, user: int, *, tidy: bool = True) -> None:
        """The last one removes the folder, unless it has to remember something."""
        try:
            if tidy and self.be_alone(user):
                self._remove()
        except OSError:
            # It is gone, or not ours to remove.
            return
        finally:
            os.close(user)

    def _remove(self) -> None:
        for file in self.folder.iterdir():
            if file != self.users and not file.name.startswith(SIGN_OF_LIFE):
                file.unlink()
        # Last: until then whoever comes waits for us.
        self.users.unlink()
        # Stays where a worker has died: its sign of life says what it was running.
        self.folder.rmdir()
