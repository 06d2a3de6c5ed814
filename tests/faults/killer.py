"""Kills its own process at a write, a sync, a lock or a deletion: before it, or right after."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from localqueue.stores.sqlite.companions import Companions
from tests.faults.defects import prepare
from tests.faults.driver import Connection, Driver
from tests.faults.files import NAME, Files, Watcher, watch_python


class Killer(Watcher):
    """Counts the moments that pass once it is armed."""

    def __init__(self, database: Path) -> None:
        self.passed = 0
        self._database = database
        self._armed = False
        self._at: int | None = None

    def install(self, defect: str | None) -> None:
        """From now on every connection of this process is watched, and has the defect."""
        self._files = Files(self)
        driver = Driver(NAME)
        if defect is not None:
            driver.connection = type(defect, (prepare(defect), Connection), {})
        driver.install()
        watch_python(self, self._database)
        really_lock, really_write = fcntl.flock, os.write
        fcntl.flock = lambda fd, how: self._around(lambda: really_lock(fd, how))
        os.write = lambda fd, data: self._around(lambda: really_write(fd, data))

    def arm(self, moment: int | None) -> None:
        self._armed, self._at = True, moment

    def kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def open(self, path: str, creates: bool, go: Callable[[], Any]) -> Any:
        return self._around(go)

    def write(self, inode: int, offset: int, data: bytes, go: Callable[[], None]) -> None:
        self._around(go)

    def truncate(self, inode: int, size: int, go: Callable[[], None]) -> None:
        self._around(go)

    def sync(self, inode: int, path: str, by: str, go: Callable[[], None]) -> None:
        self._around(go)

    def sync_folder(self, go: Callable[[], None]) -> None:
        self._around(go)

    def delete(self, path: str, go: Callable[[], None]) -> None:
        self._around(go)

    def rename(self, path: str, to: str, go: Callable[[], None]) -> None:
        self._around(go)

    def _around(self, go: Callable[[], Any]) -> Any:
        self._pass()
        answer = go()
        self._pass()
        return answer

    def _pass(self) -> None:
        if self._armed:
            self.passed += 1
            if self.passed == self._at:
                self.kill()


class FullDisk(Killer):
    """Refuses all writes from one on, until the ballast is given up."""

    def __init__(self, database: Path) -> None:
        super().__init__(database)
        self._ballast = Companions(database).ballast

    def write(self, inode: int, offset: int, data: bytes, go: Callable[[], None]) -> None:
        if self._armed:
            self.passed += 1
            full = self._at is not None and self.passed >= self._at
            if full and self._ballast.exists():
                raise apsw.exception_for(apsw.SQLITE_FULL)
        go()

    def _around(self, go: Callable[[], Any]) -> Any:
        return go()
