"""A file that has its name only when it is whole."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

from localqueue.errors import InvalidArgument, StoreBusy, StoreError, StoreReadOnly, WrongType
from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.durability import sync_folder

if sys.platform == "darwin":
    import fcntl

_BESIDE = ("-wal", "-shm", "-journal", "-daybook")
"""What SQLite and a store may keep beside a database."""


def as_path(path: str | Path) -> Path:
    if not isinstance(path, (str, Path)):
        raise WrongType(f"path must be a string or a Path, not {type(path).__name__}")
    if "\0" in str(path):
        raise InvalidArgument(f"path cannot contain a NUL: {path!r}")
    return Path(path).expanduser().absolute()


def check_target(target: str | Path, source: Path, *, overwrite: bool) -> Path:
    """Refuse, before anything is written, what would write over something; the absolute path."""
    path = as_path(target)
    try:
        _check(path, source, overwrite)
    except OSError as error:
        raise StoreReadOnly(f"{path}: it cannot be made here ({error})") from error
    return path


def _check(path: Path, source: Path, overwrite: bool) -> None:
    if not path.parent.is_dir():
        raise InvalidArgument(f"{path}: there is no such folder; make it first")
    if _is_part_of(path, Companions(source)):
        raise InvalidArgument(f"{path} belongs to the store itself; give another path")
    if path.is_dir():
        raise InvalidArgument(f"{path} is a directory; name a file")
    if path.exists() or path.is_symlink():
        if not overwrite:
            raise InvalidArgument(f"{path} exists already; say overwrite=True to replace it")
        if not path.is_file():
            raise InvalidArgument(f"{path} is no ordinary file; give another path")
    for ending in _BESIDE:
        beside = path.with_name(path.name + ending)
        if beside.exists():
            # It would be taken for a part of the new file, or what is in it would be lost.
            raise StoreBusy(
                f"{beside} is there: a store is open under that path, or was not closed;"
                " close it, or remove both"
            )


def _is_part_of(path: Path, store: Companions) -> bool:
    real = Path(os.path.realpath(path))
    own = {store.database.with_name(store.database.name + ending) for ending in ("", *_BESIDE)}
    if real in own or store.folder in (real, *real.parents):
        return True
    return path.exists() and store.database.exists() and path.samefile(store.database)


@contextlib.contextmanager
def new_file(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """Another name beside the target, to be filled; at the end it is synced and gets its name.

    Nothing is left behind when the block raises. Nobody may have the file open when it ends.
    """
    temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}.partial")
    try:
        try:
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError as error:
            raise StoreReadOnly(f"{target}: it cannot be made here ({error})") from error
        yield temporary
        try:
            _sync(temporary)
            _name(temporary, target, overwrite)
            sync_folder(target.parent)
        except OSError as error:
            raise StoreError(f"{target}: the system refused it ({error})") from error
    finally:
        for ending in ("", *_BESIDE):
            temporary.with_name(temporary.name + ending).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
        if sys.platform == "darwin":
            # fsync there leaves the data in the drive's cache.
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    finally:
        os.close(descriptor)


def _name(temporary: Path, target: Path, overwrite: bool) -> None:
    if overwrite:
        temporary.replace(target)
        return
    try:
        # Unlike a rename it never replaces what somebody else has put there meanwhile.
        target.hardlink_to(temporary)
    except FileExistsError:
        raise InvalidArgument(f"{target} exists already; it was made meanwhile") from None
    except OSError:
        # Not every file system has links.
        if target.exists():
            raise InvalidArgument(f"{target} exists already; it was made meanwhile") from None
        temporary.rename(target)
