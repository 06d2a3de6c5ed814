"""Which call a process began last, in memory that its worker sees: also when it has died."""

from __future__ import annotations

import mmap
import os
import struct
import tempfile

_NUMBER = struct.Struct("=Q")


class Begun:
    """A number that one process writes and the other reads, without a word between them."""

    def __init__(self, file: int) -> None:
        """``file`` stays the caller's."""
        self._map = mmap.mmap(file, _NUMBER.size)

    def write(self, number: int) -> None:
        _NUMBER.pack_into(self._map, 0, number)

    def read(self) -> int:
        found: int = _NUMBER.unpack_from(self._map)[0]
        return found


def new_file() -> int:
    """A descriptor of memory that has no name."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("localqueue-begun")
    else:
        with tempfile.TemporaryFile() as nameless:
            file = os.dup(nameless.fileno())
    os.truncate(file, _NUMBER.size)
    return file
