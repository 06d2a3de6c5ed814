"""Where files of a lake are: a folder on disk, or a prefix in an object store."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from localqueue.errors import ConfigurationError, StoreError, StoreFull, StoreReadOnly
from localqueue.stores.masking import masked

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_IN_SPARK_A_PATTERN = frozenset("*?[]{}\\")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True, repr=False)
class Location:
    """A folder by its absolute path or its URL. It can be pickled; shown, it has no secrets.

    Object stores are those that the ``deltalake`` library knows (``s3://``, ``gs://``, ``az://``)
    with its storage options; files are written and read through the same library, so that no JAR
    and no second set of credentials is needed.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return masked(self.uri)

    def __repr__(self) -> str:
        return f"Location({str(self)!r})"

    @classmethod
    def parse(cls, text: str | Path, options: Mapping[str, str] | None = None) -> Location:
        """A path, made absolute, or a URL."""
        written = os.fspath(text)
        scheme = urlsplit(written).scheme.lower() if "://" in written else ""
        if scheme == "file":
            written, scheme = unquote(urlsplit(written).path), ""
        if scheme in ("sqlite", "memory", "postgresql", "postgres", "redis"):
            raise ConfigurationError(
                f"{masked(written)} is a store, and a lake is wanted here: a folder or the URL of"
                " an object store"
            )
        if scheme:
            return cls(written.rstrip("/"), dict(options or {}))
        if not written:
            raise ConfigurationError("a lake needs a folder or the URL of an object store")
        return cls(str(Path(written).absolute()))

    @property
    def is_local(self) -> bool:
        return "://" not in self.uri

    @property
    def is_read_by_spark(self) -> bool:
        """Whether Spark itself can be given these files: on disk, and not taken for a pattern."""
        return self.is_local and not _IN_SPARK_A_PATTERN & set(self.uri)

    def __truediv__(self, name: str) -> Location:
        return Location(f"{self.uri}/{name}", self.options)

    def relative(self, uri: str) -> str:
        """The name of a file in this folder whose whole address is given, in any spelling."""
        return uri.rpartition("/")[2]

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        """A new file in the folder, open for writing; on stable storage when the block is left.

        When the block fails, nothing of the file is left, as far as that can be helped.
        """
        try:
            with self._created(name) as file:
                yield file
        except OSError as error:
            self.delete(name)
            raise named_after(error, f"writing {self}/{name}") from error
        except BaseException:
            self.delete(name)
            raise

    @contextmanager
    def _created(self, name: str) -> Iterator[Any]:
        if not self.is_local:
            with self.file_system().open_output_stream(name) as stream:
                yield stream
            return
        Path(self.uri).mkdir(parents=True, exist_ok=True)
        with Path(self.uri, name).open("xb") as file:
            yield file
            file.flush()
            # The commit that names this file must not outlive it when the power goes.
            os.fsync(file.fileno())

    def open(self, name: str) -> IO[bytes] | Any:
        """A file of the folder, open for reading."""
        if self.is_local:
            return Path(self.uri, name).open("rb")
        return self.file_system().open_input_file(name)

    def names(self) -> list[str]:
        """The names of what is in the folder; none when it is not there."""
        if self.is_local:
            folder = Path(self.uri)
            return [path.name for path in folder.iterdir()] if folder.is_dir() else []
        from pyarrow.fs import FileSelector

        found = self.file_system().get_file_info(FileSelector("", allow_not_found=True))
        return [info.base_name for info in found]

    def delete(self, name: str) -> None:
        """Let go of a file that no commit names; vacuum finds it if this does not succeed."""
        try:
            if self.is_local:
                Path(self.uri, name).unlink(missing_ok=True)
            else:
                self.file_system().delete_file(name)
        except OSError:
            pass

    def file_system(self) -> FileSystem:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler(self.uri, dict(self.options)))


def named_after(error: OSError, doing: str) -> StoreError:
    """The error of our tree that says what the system's says."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(error):
        return StoreFull(f"no room left while {doing}; what was committed is intact")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StoreReadOnly(f"not allowed: {doing}")
    return StoreError(f"{doing} failed: {without_colours(str(error))}")


def without_colours(text: str) -> str:
    """The Delta library writes errors for a terminal, and colours them wherever they go."""
    return _COLOUR.sub("", text)
