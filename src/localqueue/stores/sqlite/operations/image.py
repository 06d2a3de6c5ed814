"""The pages of a database file, as they are on the disk, with its -wal laid over them.

SQLite is not asked: it refuses a file whose first page is damaged, and it would write to the files
beside it. Nothing here writes anything.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from localqueue.errors import StoreBusy, StoreReadOnly, StoreUnsupported
from localqueue.stores.sqlite import open_files
from localqueue.stores.sqlite.companions import Companions

MAGIC = b"SQLite format 3\0"
DEFAULT_PAGE_SIZE = 4096
_SIZES = frozenset(2**power for power in range(9, 17))

_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

_kept: list[int] = []
"""Descriptors of files that this process has open as a store: see ``Image.__init__``."""


class Header(NamedTuple):
    """What the first page says of the file; what is None there cannot be true."""

    page_size: int | None
    reserved: int
    first_free: int
    version: int
    application: int

    @classmethod
    def read(cls, page: bytes) -> Header | None:
        if len(page) < 100 or page[:16] != MAGIC:
            return None
        (size,) = struct.unpack_from(">H", page, 16)
        size = 65536 if size == 1 else size
        first_free, version, application = (
            struct.unpack_from(">I", page, at)[0] for at in (32, 60, 68)
        )
        reserved = page[20] if page[20] <= 64 else 0
        return cls(size if size in _SIZES else None, reserved, first_free, version, application)


class Image:
    """A file as a row of pages, numbered from 1."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []
        self._wal_path = Companions(path).wal
        self._stack = contextlib.ExitStack()
        if path.exists() and not path.is_file():
            raise StoreUnsupported(f"{path} is no ordinary file; name a file")
        try:
            self._file = os.open(path, _FLAGS)
        except OSError as error:
            raise StoreReadOnly(f"{path}: it cannot be read ({error})") from error
        stat = os.fstat(self._file)
        try:
            self._stack.enter_context(open_files.alone((stat.st_dev, stat.st_ino)))
            self._stack.callback(os.close, self._file)
        except StoreBusy:
            # Closing it would take away the locks of the store that has the file open.
            _kept.append(self._file)
        self._before = self._signature()
        header = Header.read(_read_at(self._file, 100, 0))
        self._wal = self._stack.enter_context(_Wal(self._wal_path))
        self.page_size = (header and header.page_size) or self._wal.page_size or DEFAULT_PAGE_SIZE
        self._frames = self._wal.frames(self.page_size)
        self.problems += self._wal.problems
        self.count = max(-(-stat.st_size // self.page_size), max(self._frames, default=0))
        self.header = Header.read(self.page(1))
        self.usable = self.page_size - (self.header.reserved if self.header else 0)

    def page(self, number: int) -> bytes:
        """Its bytes, zeros where the file ends or the disk cannot read it."""
        at = self._frames.get(number)
        descriptor = self._file if at is None else self._wal.descriptor
        offset = (number - 1) * self.page_size if at is None else at
        try:
            found = _read_at(descriptor, self.page_size, offset)
        except OSError as error:
            self.problems.append(f"page {number} cannot be read from the disk ({error})")
            found = b""
        return found.ljust(self.page_size, b"\0")

    def is_as_before(self) -> bool:
        """Whether nobody has written to it since it was opened."""
        return self._signature() == self._before

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._stack.close()

    def _signature(self) -> tuple[object, ...]:
        stat = os.fstat(self._file)
        try:
            with self._wal_path.open("rb") as wal:
                salts = wal.read(32)
        except OSError:
            salts = b""
        return stat.st_size, stat.st_mtime_ns, salts


class _Wal:
    """The -wal: pages that were committed and are not in the file yet."""

    def __init__(self, path: Path) -> None:
        self.problems: list[str] = []
        self.page_size: int | None = None
        try:
            self.descriptor = os.open(path, _FLAGS)
        except OSError:
            self.descriptor = -1
            self._header = b""
            return
        self._header = _read_at(self.descriptor, 32, 0)
        if len(self._header) == 32:
            (size,) = struct.unpack_from(">I", self._header, 8)
            self.page_size = size if size in _SIZES else None

    def frames(self, page_size: int) -> dict[int, int]:
        """Where the newest committed content of each page is.

        As SQLite reads it: up to the first frame whose checksum is wrong. What was committed after
        that could be laid over pages that belong to an older state.
        """
        if len(self._header) < 32:
            return {}
        magic, _, size = struct.unpack_from(">III", self._header)
        order = ">" if magic & 1 else "<"
        sums = _checksum(order, self._header[:24], (0, 0))
        if (
            magic & ~1 != 0x377F0682
            or size != page_size
            or sums != struct.unpack_from(">II", self._header, 24)
        ):
            self.problems.append("the first bytes of the -wal are damaged: all of it is lost")
            return {}
        committed: dict[int, int] = {}
        pending: dict[int, int] = {}
        at = 32
        while len(frame := _read_at(self.descriptor, 24 + page_size, at)) == 24 + page_size:
            number, commits = struct.unpack_from(">II", frame)
            sums = _checksum(order, frame[:8] + frame[24:], sums)
            if frame[8:16] != self._header[16:24]:
                break
            if sums != struct.unpack_from(">II", frame, 16):
                self.problems.append(
                    "the -wal is damaged, or its end was never written: what was committed after"
                    f" its first {(at - 32) // (24 + page_size):,} pages is lost"
                )
                break
            pending[number] = at + 24
            at += 24 + page_size
            if commits:
                committed.update(pending)
                pending.clear()
        return committed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


def _read_at(descriptor: int, size: int, offset: int) -> bytes:
    """So many bytes, or what there is of them before the end."""
    os.lseek(descriptor, offset, os.SEEK_SET)
    parts, rest = [], size
    while rest and (part := os.read(descriptor, rest)):
        parts.append(part)
        rest -= len(part)
    return b"".join(parts)


def _checksum(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    """SQLite's, over pairs of 32-bit words."""
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for at in range(0, len(words), 2):
        first = (first + words[at] + second) & 0xFFFFFFFF
        second = (second + words[at + 1] + first) & 0xFFFFFFFF
    return first, second
