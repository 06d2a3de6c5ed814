"""The file of a daybook: a head, then the entries of the present generation, from the start.

It has its full length from the beginning and is written over again and again: a sync that need not
make a file longer takes half the time.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self
from zlib import crc32

from localqueue.stores.sqlite import owner
from localqueue.stores.sqlite.daybook.entries import BEGINNING, FIRST, Entry, decode, has_to_last
from localqueue.stores.sqlite.durability import Placed, sync_folder
from localqueue.stores.sqlite.network import file_system

SIZE = 1024 * 1024
_HEAD = struct.Struct("<8s8s8s")
"""What it is, whose it is, and the salt."""
_MAGIC = b"LQUEday2"
START = 64
AT_FIRST = 16 * 1024
"""Bytes of entries that are read at once: all of them take half a millisecond, and most
generations that others post are short."""
MAPS = sys.platform == "linux"
"""Whether what is written to memory and to the file is the same at once."""
IN_PLACE = frozenset(("ext2", "ext3", "ext4", "xfs", "tmpfs"))
"""File systems that write over something where it is. Others need room for that, and where there is
none they end the process that writes to memory."""


class DaybookFile(Placed):
    """The file, open."""

    def __init__(self, path: Path, descriptor: int) -> None:
        super().__init__(path, descriptor)
        self.salt = 0
        self._map: mmap.mmap | None = None

    @classmethod
    def open(cls, path: Path, *, to_look: bool = False) -> Self | None:
        """None when there is none; ``to_look`` is for who may not write."""
        mode = os.O_RDONLY if to_look else os.O_RDWR
        try:
            return cls(path, os.open(path, mode | getattr(os, "O_CLOEXEC", 0)))
        except FileNotFoundError:
            return None

    @classmethod
    def make(cls, path: Path, bits: str, database: Path) -> Self:
        """A new one, for the database, which has these bits; nobody else may be at it."""
        file = cls(path, owner.make_file(path, database))
        try:
            owner.may_be_read_like(file.descriptor, database)
            file._write(bytes(SIZE), 0)
            file.begin_anew(bits)
        except BaseException:
            # One without a head is nobody's, and so would be all that is noted in it.
            file.close()
            path.unlink()
            raise
        return file

    def fill_up(self) -> None:
        """A power cut may have taken the end of it."""
        there = os.fstat(self.descriptor).st_size
        if there < SIZE:
            self._write(bytes(SIZE - there), there)

    def belongs_to(self, bits: str) -> bool:
        """Read the head: whether the book is of the database with these bits."""
        magic, whose, salt = _HEAD.unpack(self.read(0, _HEAD.size).ljust(_HEAD.size, b"\0"))
        self.salt = crc32(whose + salt)
        return bool(magic == _MAGIC and whose == bytes.fromhex(bits))

    def holds_entries(self) -> bool:
        """Whether something was noted in it, whosever it is, and posted or not."""
        self.belongs_to("")
        return next(self.entries(0), None) is not None

    def is_in_place(self) -> bool:
        """Whether it is still the file at its path."""
        try:
            self.check_place()
        except OSError:
            return False
        return True

    def is_blank(self) -> bool:
        """Whether nothing was ever noted in it, as when making it was cut short."""
        return not self.read(0, _HEAD.size).strip(b"\0")

    def begin_anew(self, bits: str) -> None:
        """Nothing that was noted counts any more."""
        salt = secrets.token_bytes(8)
        whose = bytes.fromhex(bits)
        head = _HEAD.pack(_MAGIC, whose, salt)
        self._write(head.ljust(START + FIRST.size, b"\0"), 0)
        self.salt = crc32(whose + salt)

    def map(self) -> None:
        """From now on entries are written through memory: a tenth of the time of a call.

        A sync of what was written so takes twice as long, so this is for who makes none.
        """
        if MAPS and self._map is None and file_system(Path(self.path)) in IN_PLACE:
            self._map = mmap.mmap(self.descriptor, SIZE)

    def append(self, data: bytes, at: int) -> None:
        if self._map is not None:
            self._map[at : at + len(data)] = data
        else:
            self._write(data, at)

    def holds(self, data: bytes, at: int) -> bool:
        return self.read(at, len(data)) == data

    def first_seq(self) -> int:
        """The first event of the present generation, or of one that is in the tables already."""
        found = self.read(START, FIRST.size)
        seq: int = FIRST.unpack(found)[2] if len(found) == FIRST.size else 0
        return seq

    def has_to_last(self) -> bool:
        """Whether the generation that stands there was answered as being on stable storage.

        All of it is of one process: its first entry tells.
        """
        return has_to_last(self.read(START, BEGINNING))

    def entries(self, after: int) -> Iterator[tuple[Entry, bool]]:
        return decode(self.read(START, AT_FIRST), self.salt, after, self._read_more)

    def close(self) -> None:
        if self._map is not None:
            self._map.close()
        super().close()

    def make_lasting(self) -> None:
        """Its name and head, before the first answer that has to last."""
        # Once more: after a sync that failed, the next one leaves out what is not written again.
        self._write(self.read(0, START), 0)
        self.sync()
        sync_folder(Path(self.path).parent)

    def _read_more(self, n: int) -> bytes:
        """At least so many bytes of entries, if there are, and twice as many when in doubt."""
        return self.read(START, min(2 * n, SIZE))

    def read(self, at: int, n: int) -> bytes:
        return os.pread(self.descriptor, n, at)

    def _write(self, data: bytes, at: int) -> None:
        written = os.pwrite(self.descriptor, data, at)
        while written < len(data):
            # A signal, or a disk that becomes full: the next one tells.
            written += os.pwrite(self.descriptor, data[written:], at + written)
