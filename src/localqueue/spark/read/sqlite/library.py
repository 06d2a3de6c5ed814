"""Running a SELECT on a SQLite file, with the rows as Arrow batches and nothing left open.

ADBC makes them several times faster than Python's sqlite3, but it is another SQLite library: it
has the file only while nobody else in the process has, see ``open_files``. Python workers are
reused, so code of the user may have the file open in the process that reads it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from localqueue.errors import ConfigurationError, StoreBusy
from localqueue.spark.read.sqlite.tables import TYPES, Kind, typed
from localqueue.stores.sqlite import connection, open_files

ROWS_AT_ONCE = 16_384
TIMEOUT = 15.0
"""Seconds to wait for one who recovers the -wal after a crash; readers wait for nobody else."""


def read_rows(
    path: Path, inode: open_files.Inode, select: str, kinds: Sequence[Kind]
) -> list[pa.RecordBatch]:
    """What the statement gives, in columns of these kinds; errors are those of the tree."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(open_files.alone(inode))
        except StoreBusy:
            return read_by_sqlite3(path, inode, select, kinds)
        with contextlib.suppress(*_adbc_errors()):
            return read_by_adbc(path, select, kinds)
    # What is wrong is said better by the library that the rest of the store uses.
    return read_by_sqlite3(path, inode, select, kinds)


def read_by_adbc(path: Path, select: str, kinds: Sequence[Kind]) -> list[pa.RecordBatch]:
    """Only inside ``open_files.alone``."""
    from adbc_driver_sqlite import StatementOptions, dbapi

    with dbapi.connect(f"{path.as_uri()}?mode=ro") as db, db.cursor() as cursor:
        cursor.execute(f"PRAGMA busy_timeout = {int(TIMEOUT * 1000)}")
        cursor.fetchall()
        cursor.adbc_statement.set_options(**{StatementOptions.BATCH_ROWS.value: ROWS_AT_ONCE})
        cursor.execute(typed(select, kinds))
        batches = list(cursor.fetch_record_batch())
    batches[0] = batches[0].slice(1)
    return [batch for batch in batches if batch.num_rows]


def read_by_sqlite3(
    path: Path, inode: open_files.Inode, select: str, kinds: Sequence[Kind]
) -> list[pa.RecordBatch]:
    """Together with others of this process that use sqlite3."""
    names = [str(at) for at in range(len(kinds))]
    batches = []
    with (
        open_files.shared(inode),
        connection.translated(str(path)),
        contextlib.closing(open_to_look(path)) as db,
    ):
        rows = db.execute(select)
        while some := rows.fetchmany(ROWS_AT_ONCE):
            columns = [
                pa.array(column, TYPES[kind])
                for column, kind in zip(zip(*some, strict=True), kinds, strict=True)
            ]
            batches.append(pa.RecordBatch.from_arrays(columns, names))
    return batches


def open_to_look(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing: it makes no checkpoint either when it is closed."""
    return sqlite3.connect(
        f"{path.as_uri()}?mode=ro",
        uri=True,
        timeout=TIMEOUT,
        isolation_level=None,
        check_same_thread=False,
    )


def _adbc_errors() -> tuple[type[Exception], ...]:
    try:
        from adbc_driver_sqlite.dbapi import Error
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f'{error.name} is missing, which reads stores here: pip install "./localqueue[spark]"'
        ) from error
    return (Error, OSError, pa.ArrowException)
