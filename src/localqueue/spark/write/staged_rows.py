"""Rows on their way from a task to the driver: in its message when they are few, else in a file."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Self

import pyarrow as pa

from localqueue import failpoints
from localqueue.errors import ConfigurationError, StoreCorrupt
from localqueue.spark.write.staging import ENDING, Folder

RIDES = 256 * 1024
"""Bytes of a task's rows that ride in its message: a file costs a sync, and thousands of tasks may
send theirs to one driver."""
RIDES_FROM_ELSEWHERE = 64 * 1024 * 1024
"""The same where there is no folder to leave a file in, of all tasks together."""
_PIECE = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file of rows, and how to know that it is whole."""

    name: str
    rows: int
    size: int
    checksum: int


class RowsOut:
    """Takes the rows of one task, or of the driver. Leaving with an error removes its file.

    ``folder`` is None where none is to be had: then ConfigurationError when it would be needed.
    """

    def __init__(
        self, schema: pa.Schema, folder: Folder | None, prefix: str, partition: int = 0
    ) -> None:
        self._schema = schema
        self._folder = folder
        self._prefix = prefix
        self._limit = RIDES if folder is not None else _from_elsewhere(partition)
        self._kept: list[pa.RecordBatch] = []
        self._size = 0
        self._rows = 0
        self._file: _File | None = None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.__exit__(kind, error, traceback)

    def add(self, rows: pa.RecordBatch) -> None:
        self._rows += len(rows)
        if self._file is not None:
            self._file.add(rows)
            return
        self._kept.append(rows)
        self._size += rows.get_total_buffer_size()
        if self._size > self._limit:
            self.to_file()

    def to_file(self) -> None:
        """Whatever comes, it goes to a file."""
        if self._folder is None:
            raise ConfigurationError(
                f"a task on another host than the store has more than {self._limit / 1024**2:.3g}"
                f" MB of rows, its share of the {RIDES_FROM_ELSEWHERE / 1024**2:.3g} MB that a"
                " driver takes; give stagingDirectory, a folder or an object store that all hosts"
                " can write"
            )
        name = f"{self._prefix}-{os.urandom(8).hex()}{ENDING}"
        sink = self._open.enter_context(self._folder.create(name))
        self._file = _File(name, sink, self._schema)
        for rows in self._kept:
            self._file.add(rows)
        self._kept.clear()

    def finish(self) -> bytes | StagedFile | None:
        """The rows as bytes, or the file that they are in; None if there are none."""
        if self._file is not None:
            staged = self._file.finish(self._rows)
            self._open.close()
            failpoints.reach("sink.staged")
            return staged
        if not self._rows:
            return None
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as writer:
            for rows in self._kept:
                writer.write_batch(rows)
        message: bytes = sink.getvalue().to_pybytes()
        return message


def _from_elsewhere(partition: int) -> int:
    # A task is not told how many there are, only that it is at least the so many-th: so equal ones
    # have the whole together, and others a few times as much.
    return max(RIDES, RIDES_FROM_ELSEWHERE // (partition + 1))


class _File:
    """Arrow's stream format, with size and checksum of what went into it."""

    def __init__(self, name: str, sink: IO[bytes] | pa.NativeFile, schema: pa.Schema) -> None:
        self._name = name
        self._counted = _Counted(sink)
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._counted, mode="w"), schema)

    def add(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows)

    def finish(self, rows: int) -> StagedFile:
        self._writer.close()
        return StagedFile(self._name, rows, self._counted.size, self._counted.checksum)


class _Counted:
    def __init__(self, sink: IO[bytes] | pa.NativeFile) -> None:
        self._sink = sink
        self.size = 0
        self.checksum = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self._sink.write(data)
        size = memoryview(data).nbytes
        self.size += size
        self.checksum = zlib.crc32(data, self.checksum)
        return size

    def flush(self) -> None:
        """What is written is synced at the end."""

    def close(self) -> None:
        self.closed = True


def check_file(folder: Folder, staged: StagedFile) -> None:
    """StoreCorrupt unless the file is there, whole and as it was written."""
    try:
        file = folder.read(staged.name)
    except FileNotFoundError:
        raise StoreCorrupt(
            f"the staged file {staged.name} is not there; the driver and all tasks have to see the"
            " same stagingDirectory"
        ) from None
    with file:
        size, checksum = file.size(), 0
        while size == staged.size and (piece := file.read_buffer(_PIECE)).size:
            checksum = zlib.crc32(piece, checksum)
    if (size, checksum) != (staged.size, staged.checksum):
        raise StoreCorrupt(
            f"the staged file {staged.name} is not what was written: {size:,} of"
            f" {staged.size:,} bytes, and another checksum"
            if size != staged.size
            else f"the staged file {staged.name} is not what was written: its checksum differs"
        )


def rows_in_file(folder: Folder, staged: StagedFile) -> Iterator[pa.RecordBatch]:
    with folder.read(staged.name) as file, pa.ipc.open_stream(file) as reader:
        yield from reader


def rows_in_message(message: bytes) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(message) as reader:
        yield from reader
