"""Reading ranges of a file as Arrow batches with the columns that were asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from localqueue.spark.payload.columns import Payload
from localqueue.spark.read import journal_columns, message_columns
from localqueue.spark.read.cells import Cells
from localqueue.spark.read.scan import Piece
from localqueue.spark.read.sqlite.library import read_rows
from localqueue.spark.read.sqlite.tables import EVENT_CELLS, MESSAGE_CELLS, Ends, Table
from localqueue.spark.read.sqlite.task import SQLiteTask

MOST_BYTES = 64 * 1024 * 1024
"""Of values that stand in the table body: a range that has more is read in two halves."""

Tables = Sequence[tuple[Table, str]]


class RowReader:
    """Reads for one task. It learns which cells its rows have, and leaves out the others.

    A cell that is as usual in every row of a range is not read, only looked at inside SQLite. When
    a row turns out to be different, the range is read again with all its cells, and those that
    differ are among the known ones from then on.
    """

    def __init__(self, task: SQLiteTask, path: Path) -> None:
        self._task = task
        self._path = path
        schema = task.spark_schema
        self._schema = to_arrow_schema(schema, timezone="UTC")
        payload = StructType(schema.fields[len(task.columns) :])
        self._payload = Payload(payload, task.mode) if payload.fields else None
        self._kinds = EVENT_CELLS if task.journal else MESSAGE_CELLS
        self._wanted = self._needed()
        self._known: set[str] = set()

    def read(self, tables: Tables, ends: Ends) -> Iterator[Piece]:
        """The rows of a range, in one piece unless they are large."""
        found = self._read_known(tables, ends)
        if found is None and self._is_large(tables, ends):
            low, high = ends
            yield from self.read(tables, (low, (low + high) // 2))
            yield from self.read(tables, ((low + high) // 2 + 1, high))
            return
        rows = self._read_all(tables, ends) if found is None else found
        yield Piece(ends[0] - 1, map(self._batch, rows))

    def _read_known(self, tables: Tables, ends: Ends) -> list[Cells] | None:
        """With the known cells only; None when that is not all."""
        unread = self._unread(tables)
        if not unread or ("elsewhere" in self._known and self._is_large(tables, ends)):
            return None
        wanted = [name for name in self._wanted if name not in unread]
        found = self._select(tables, ends, wanted, unread)
        return None if any(pc.min(cells["id"]).as_py() < 0 for cells in found) else found

    def _read_all(self, tables: Tables, ends: Ends) -> list[Cells]:
        found = self._select(tables, ends, self._wanted, ())
        for name in self._unread(tables):
            if any(_is_unusual(cells, name) for cells in found):
                self._known.add(name)
        return found

    def _unread(self, tables: Tables) -> list[str]:
        first = tables[0][0]
        usual = first.usual if all(table == first for table, _ in tables) else {}
        return [name for name in self._wanted if name in usual and name not in self._known]

    def _is_large(self, tables: Tables, ends: Ends) -> bool:
        if ends[0] >= ends[1] or "elsewhere" not in self._wanted:
            return False
        sizes = " UNION ALL ".join(table.select_size(where, ends) for table, where in tables)
        batches = read_rows(self._path, self._task.file.inode, sizes, ["real"])
        return bool(sum(pc.sum(batch.column(0)).as_py() for batch in batches) > MOST_BYTES)

    def _select(
        self, tables: Tables, ends: Ends, wanted: Sequence[str], usual: Sequence[str]
    ) -> list[Cells]:
        task = self._task
        select = " UNION ALL ".join(
            table.select(wanted, where, ends, usual) for table, where in tables
        )
        kinds = [self._kinds[name] for name in wanted]
        return [
            Cells(
                batch.num_rows,
                dict(zip(wanted, batch.columns, strict=True)),
                task.identity,
                task.queues,
                task.mode == "FAILFAST",
            )
            for batch in read_rows(self._path, task.file.inode, select, kinds)
        ]

    def _needed(self) -> list[str]:
        """The cells that the columns are made of; the id first."""
        task = self._task
        names = [*task.columns, *(["value"] if self._payload else [])]
        needed = {"id"}
        for name in names:
            needed.update(_needs(name, journal=task.journal))
        if len(task.queues) == 1:
            needed.discard("queue")
        return [name for name in self._kinds if name in needed]

    def _batch(self, cells: Cells) -> pa.RecordBatch:
        task = self._task
        makers = journal_columns.COLUMNS if task.journal else message_columns.COLUMNS
        columns = [makers[name](cells) for name in task.columns]
        if self._payload is not None:
            name = "position" if task.journal else "id"
            columns += self._payload.columns(makers["value"](cells), lambda: makers[name](cells))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _needs(column: str, *, journal: bool) -> tuple[str, ...]:
    if journal:
        return journal_columns.NEEDS.get(column, (column,))
    return message_columns.NEEDS[column]


def _is_unusual(cells: Cells, name: str) -> bool:
    """Whether some row has a cell that must not be left out; see ``Table.usual``."""
    cell = cells[name]
    match name:
        case "pos":
            return not cell.equals(cells["created_at"])
        case "due_at" | "worker" if "state" in cells.arrays:  # of a message, not of an event
            return bool(pc.any(pc.not_equal(cells["state"], 0)).as_py())
        case "state" | "rank" | "attempts" | "failures" | "crashes":
            return bool(pc.any(pc.not_equal(cell, 0)).as_py())
    return bool(cell.null_count < len(cell))
