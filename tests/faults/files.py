"""A VFS that shows every write, truncation, sync and deletion to a test.

What the product does to its files without SQLite (it syncs the -wal itself, and writes the daybook)
is shown the same way. The -shm is not: it is memory that processes share, gone with the last of
them.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

NAME = "watched"


class Watcher:
    """Lets everything happen. A test overrides what it wants to count, record, refuse or cut off.

    ``go`` does the thing; files are told by their inode, so that a deleted one is still itself.
    """

    def open(self, path: str, creates: bool, go: Callable[[], Any]) -> Any:
        return go()

    def write(self, inode: int, offset: int, data: bytes, go: Callable[[], None]) -> None:
        go()

    def truncate(self, inode: int, size: int, go: Callable[[], None]) -> None:
        go()

    def sync(self, inode: int, path: str, by: str, go: Callable[[], None]) -> None:
        """Makes what was written to the file durable, whoever wrote it; by SQLite or Python."""
        go()

    def sync_folder(self, go: Callable[[], None]) -> None:
        """Makes the names of new and deleted files durable."""
        go()

    def delete(self, path: str, go: Callable[[], None]) -> None:
        go()

    def rename(self, path: str, to: str, go: Callable[[], None]) -> None:
        go()


class Files(apsw.VFS):
    """SQLite's usual files, shown to a watcher."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(NAME, "", maxpathname=4096)
        self._watcher = watcher

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        if name is None:
            return apsw.VFSFile("", name, flags)
        path = name if isinstance(name, str) else name.filename()
        creates = bool(flags[0] & apsw.SQLITE_OPEN_CREATE)
        file: File = self._watcher.open(
            path, creates, lambda: File(self._watcher, path, name, flags)
        )
        return file

    def xDelete(self, path: str, syncs: bool) -> None:  # noqa: N802
        self._watcher.delete(path, lambda: apsw.VFS.xDelete(self, path, syncs))
        if syncs:
            self._watcher.sync_folder(_nothing)


class File(apsw.VFSFile):
    """One open file of SQLite."""

    def __init__(
        self, watcher: Watcher, path: str, name: str | apsw.URIFilename, flags: list[int]
    ) -> None:
        self._created = not Path(path).exists()
        super().__init__("", name, flags)
        self._watcher = watcher
        self._path = path
        # stat and not open: closing a descriptor would take SQLite's locks away.
        self._inode = Path(path).stat().st_ino

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        written = bytes(data)
        self._watcher.write(
            self._inode, offset, written, lambda: apsw.VFSFile.xWrite(self, written, offset)
        )

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._watcher.truncate(self._inode, size, lambda: apsw.VFSFile.xTruncate(self, size))

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._watcher.sync(
            self._inode, self._path, "SQLite", lambda: apsw.VFSFile.xSync(self, flags)
        )
        if self._created:
            # SQLite syncs the folder with the first sync of a file that it made.
            self._created = False
            self._watcher.sync_folder(_nothing)


def watch_python(watcher: Watcher, database: Path) -> None:
    """Show what Python code of this process does to the database, to its -wal and -daybook, and to
    their folder.
    """
    names = {str(database), f"{database}-wal", f"{database}-daybook"}
    folder = database.parent.stat().st_ino
    really_open, really_write = os.open, os.pwrite
    really_sync, really_sync_data = os.fsync, os.fdatasync
    really_unlink, really_rename, really_map = os.unlink, os.rename, mmap.mmap

    class Map(mmap.mmap):
        """A file in memory: to write there is to write the file."""

        inode = 0

        def __setitem__(self, where: Any, data: Any) -> None:
            def go() -> None:
                really_map.__setitem__(self, where, data)

            watcher.write(self.inode, where.start, bytes(data), go)

    def map_(descriptor: int, *rest: Any, **options: Any) -> mmap.mmap:
        if _path_of(descriptor) not in names:
            return really_map(descriptor, *rest, **options)
        mapped = Map(descriptor, *rest, **options)
        mapped.inode = os.fstat(descriptor).st_ino
        return mapped

    def open_(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        def go() -> int:
            return really_open(path, flags, *rest, **options)

        if str(path) not in names:
            return go()
        descriptor: int = watcher.open(str(path), bool(flags & os.O_CREAT), go)
        return descriptor

    def write(descriptor: int, data: Any, offset: int) -> int:
        if _path_of(descriptor) not in names:
            return really_write(descriptor, data, offset)

        def go() -> None:
            assert really_write(descriptor, data, offset) == len(data), "written in part"

        try:
            watcher.write(os.fstat(descriptor).st_ino, offset, bytes(data), go)
        except apsw.FullError:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        return len(data)

    def sync(descriptor: Any, how: Callable[[Any], None]) -> None:
        inode = os.fstat(descriptor).st_ino
        if inode == folder:
            watcher.sync_folder(lambda: how(descriptor))
        else:
            watcher.sync(inode, _path_of(descriptor), "Python", lambda: how(descriptor))

    def unlink(path: Any, **options: Any) -> None:
        if str(path) in names:
            watcher.delete(str(path), lambda: really_unlink(path, **options))
        else:
            really_unlink(path, **options)

    def rename(src: Any, dst: Any, **options: Any) -> None:
        if str(src) in names:
            watcher.rename(str(src), str(dst), lambda: really_rename(src, dst, **options))
        else:
            really_rename(src, dst, **options)

    os.open, os.pwrite = open_, write
    mmap.mmap = map_  # type: ignore[assignment,misc]
    os.fsync = lambda fd: sync(fd, really_sync)
    os.fdatasync = lambda fd: sync(fd, really_sync_data)
    os.unlink, os.rename = unlink, rename


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115  # asked for with every write


def _nothing() -> None:
    return
