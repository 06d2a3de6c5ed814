"""Where tasks leave rows that are too many for a message to the driver.

A folder beside the store's file serves the tasks of its host. Others need ``stagingDirectory``: a
shared folder, or an object store that pyarrow can write.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from localqueue.clock import SYSTEM_CLOCK
from localqueue.errors import ConfigurationError
from localqueue.spark.options import Options
from localqueue.stores.masking import masked
from localqueue.stores.open import open_store
from localqueue.stores.sqlite.store import SQLiteQueueStore

ENDING = ".rows"
OLD = 86_400.0
"""Seconds after which a file that no batch refers to is nobody's: no task runs that long."""


class Folder(Protocol):
    """A place for files that are written once, read by the driver, and removed."""

    def create(self, name: str) -> contextlib.AbstractContextManager[IO[bytes] | pa.NativeFile]:
        """A new file to write: on stable storage when the block ends, gone when it fails."""

    def read(self, name: str) -> pa.NativeFile:
        """FileNotFoundError when there is none."""

    def names(self, prefix: str) -> list[str]: ...

    def remove(self, names: Collection[str]) -> None:
        """Those that are there."""


class LocalFolder:
    """A folder of this host, or one that is mounted on it.

    One that is ``ours`` is its owner's alone and goes with its last file. Another is the user's: it
    stays, and whoever it lets in may have its files, as far as the umask allows.
    """

    def __init__(self, path: Path, *, ours: bool) -> None:
        self._path = path
        self._ours = ours

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[IO[bytes]]:
        path = self._path / name
        try:
            with self._open(path) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        folder = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _open(self, path: Path) -> IO[bytes]:
        while True:
            # Made in each turn: who removes the last file removes the folder too.
            self._path.mkdir(mode=0o700 if self._ours else 0o770, parents=True, exist_ok=True)
            mode = 0o600 if self._ours else 0o660
            with contextlib.suppress(FileNotFoundError):
                return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb")

    def read(self, name: str) -> pa.NativeFile:
        return pa.memory_map(str(self._path / name))

    def names(self, prefix: str) -> list[str]:
        try:
            return [file.name for file in self._path.iterdir() if file.name.startswith(prefix)]
        except FileNotFoundError:
            return []

    def old_names(self) -> list[str]:
        """Files of rows that have been there for longer than any task runs."""
        oldest, found = time.time() - OLD, []
        for name in self.names(""):
            with contextlib.suppress(FileNotFoundError):
                if name.endswith(ENDING) and (self._path / name).stat().st_mtime < oldest:
                    found.append(name)
        return found

    def remove(self, names: Collection[str]) -> None:
        for name in names:
            (self._path / name).unlink(missing_ok=True)
        if self._ours:
            with contextlib.suppress(OSError):
                self._path.rmdir()


class ObjectFolder:
    """A prefix of an object store: what is written there is there as a whole, or not."""

    def __init__(self, files: pafs.FileSystem, path: str) -> None:
        self._files = files
        self._path = path.rstrip("/")

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[pa.NativeFile]:
        file = self._files.open_output_stream(f"{self._path}/{name}")
        try:
            yield file
        except BaseException:
            with contextlib.suppress(OSError):
                file.close()
                self.remove([name])
            raise
        file.close()

    def read(self, name: str) -> pa.NativeFile:
        return self._files.open_input_file(f"{self._path}/{name}")

    def names(self, prefix: str) -> list[str]:
        selector = pafs.FileSelector(self._path, allow_not_found=True)
        found = [info.base_name for info in self._files.get_file_info(selector)]
        return [name for name in found if name.startswith(prefix)]

    def remove(self, names: Collection[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self._files.delete_file(f"{self._path}/{name}")


def staging_location(options: Options) -> str:
    """The folder's path, or the URL of an object store's."""
    chosen = options.staging_directory
    if chosen is None:
        return beside(options.url)
    path = _local_path(chosen)
    if path is None:
        return chosen
    if not path.is_absolute():
        raise ConfigurationError(
            f"stagingDirectory is relative, and Spark's processes run in folders of their own:"
            f" {chosen!r}; write an absolute path"
        )
    return str(path)


def beside(url: str) -> str:
    """The folder beside a store's file."""
    store = open_store(url)
    if not isinstance(store, SQLiteQueueStore):
        raise ConfigurationError(
            f"{masked(url)} has no folder beside it to stage rows in; give stagingDirectory"
        )
    return f"{os.path.realpath(store.path)}-staging"


def folder_at(location: str, *, ours: bool) -> Folder:
    """``ours`` says that it is the folder beside the store, and nobody else's."""
    path = _local_path(location)
    if path is not None:
        return LocalFolder(path, ours=ours)
    try:
        files, inside = pafs.FileSystem.from_uri(location)
    except (ValueError, NotImplementedError, OSError) as error:
        raise ConfigurationError(
            f"stagingDirectory {masked(location)} cannot be used: {masked(str(error))}"
        ) from None
    return ObjectFolder(files, inside)


def is_this_host(boot_id: str) -> bool:
    """Whether a process with this boot id sees the same files."""
    return boot_id == SYSTEM_CLOCK.boot_id()


def _local_path(location: str) -> Path | None:
    if "://" not in location and not location.startswith("file:"):
        return Path(location)
    parts: Any = urlsplit(location)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
