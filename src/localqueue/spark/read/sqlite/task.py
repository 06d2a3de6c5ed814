"""A part of a read of a SQLite file: ranges of it, each read in a short transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from localqueue.clock import SYSTEM_CLOCK
from localqueue.errors import StoreUnsupported
from localqueue.spark.options import Mode
from localqueue.spark.read.scan import Piece, ReadTask
from localqueue.stores.sqlite import connection, open_files

if TYPE_CHECKING:
    from localqueue.spark.read.sqlite.tables import Ends, Table


@dataclass(frozen=True, slots=True)
class File:
    """A SQLite file as the driver found it; other hosts have another file there, or none."""

    path: str
    inode: open_files.Inode
    boot_id: str

    def check(self) -> Path:
        """Its path; StoreUnsupported on another host, StoreMoved when it is another file by now."""
        if SYSTEM_CLOCK.boot_id() != self.boot_id:
            raise StoreUnsupported(
                f"{self.path} is a SQLite file on another host, and this task runs elsewhere; use"
                " PostgreSQL, or a local master such as local[*]"
            )
        connection.check_same_file(self.path, self.inode)
        return Path(self.path)


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of a table: where a condition on its cells is true, by ranges of their ids."""

    tables: tuple[tuple[Table, str], ...]
    """Each with its condition, see ``Table.select``. Several are read together, in one state of the
    file."""
    ranges: tuple[Ends, ...]


@dataclass(frozen=True)
class SQLiteTask(ReadTask):
    """Spans of a file, and the columns to make of them."""

    file: File
    spans: tuple[Span, ...]
    journal: bool
    columns: tuple[str, ...]
    identity: tuple[tuple[int, str], ...]
    queues: Mapping[int, str]
    schema: str
    """All columns as JSON, those of the payload last."""
    mode: Mode

    def pieces(self) -> Iterator[Piece]:
        from localqueue.spark.read.sqlite.rows import RowReader

        reader = RowReader(self, self.file.check())
        for span in self.spans:
            for ends in span.ranges:
                # Between two of them it is closed, for as long as somebody takes over the rows.
                self.file.check()
                yield from reader.read(span.tables, ends)

    @property
    def spark_schema(self) -> StructType:
        return StructType.fromJson(json.loads(self.schema))
