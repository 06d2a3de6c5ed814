"""A SQLite store's file, opened to look at it: nothing is made, migrated or changed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from localqueue.clock import SYSTEM_CLOCK
from localqueue.errors import (
    StoreClosed,
    StoreCorrupt,
    StoreMissing,
    StoreReadOnly,
    StoreUnsupported,
)
from localqueue.spark.read.sqlite.library import open_to_look
from localqueue.spark.read.sqlite.task import File
from localqueue.stores.settings import QueueSettings
from localqueue.stores.sqlite import connection, open_files
from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.daybook.file import DaybookFile
from localqueue.stores.sqlite.durability import SYNCS_ITSELF, Wal
from localqueue.stores.sqlite.identity import Identity
from localqueue.stores.sqlite.sql import SCHEMA_VERSION, SQL
from localqueue.stores.sqlite.store import SQLiteQueueStore

_QUEUES = "SELECT id, name, settings, topic FROM queue ORDER BY id"


class Queue(NamedTuple):
    """A queue's row."""

    number: int
    name: str
    settings: QueueSettings
    is_subscriber: bool


class Look:
    """The file, open until ``close``. A transaction is open only inside ``snapshot``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._undo = ExitStack()
        self._store: SQLiteQueueStore | None = None
        with ExitStack() as undo:
            inode = _existing(path)
            undo.enter_context(open_files.shared(inode))
            connection.recognise(path)
            with connection.translated(str(path)):
                self._db = open_to_look(path)
                undo.callback(self._db.close)
                (version,) = self._db.execute("PRAGMA user_version").fetchone()
                if version < SCHEMA_VERSION:
                    raise StoreUnsupported(
                        f"{path} is of an earlier version ({version}) of localqueue; open it once"
                        f" with a queue of this release, which makes it version {SCHEMA_VERSION}"
                    )
                rows = self._db.execute(SQL.identities).fetchall()
                # A copy that nobody has opened yet is not the store it was copied from.
                copied = self._db.execute(SQL.read_mark, ("copied",)).fetchone()
            self.identity_rows: tuple[tuple[int, str], ...] = tuple(rows)
            self.identity = Identity(rows)
            self.is_copy = copied is not None
            self.store_id = f"{rows[-1][1]}-copied" if self.is_copy else rows[-1][1]
            self.file = File(str(path), inode, SYSTEM_CLOCK.boot_id())
            self._undo = undo.pop_all()
        self._closed = False

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """One state of the file. StoreMoved when another one is in its place by now."""
        if self._closed:
            raise StoreClosed(f"{self._path}: it was closed")
        connection.check_same_file(str(self._path), self.file.inode)
        with connection.translated(str(self._path)):
            self._have_notes_posted()
            self._db.execute("BEGIN")
            try:
                yield self._db
            finally:
                # Some errors have ended it already.
                if self._db.in_transaction:
                    self._db.execute("COMMIT")

    def _have_notes_posted(self) -> None:
        """What stands in the daybook is in no table yet: a store posts it before it reads."""
        (newest,) = self._db.execute(SQL.last_seq).fetchone() or (0,)
        path = Companions(self._path).daybook
        try:
            book = DaybookFile.open(path, to_look=True)
            if book is None:
                return
            try:
                if book.first_seq() <= newest:
                    return
            finally:
                book.close()
            if self._store is None:
                self._store = SQLiteQueueStore(self._path)
                self._undo.callback(self._store.close)
            self._store.queues()
        except (PermissionError, StoreReadOnly) as error:
            raise StoreReadOnly(
                f"{self._path}: its newest messages may stand in {path.name} alone, and bringing"
                " them into the file needs the right to write it; read it as a user who has that"
                f" right, or when all who use the file have closed it ({error})"
            ) from error

    def make_lasting(self) -> None:
        """What was committed so far is on stable storage: its writers may be about to sync it."""
        if not SYNCS_ITSELF:
            return
        path = self._path.resolve()
        # Without a -wal everything is in the file itself, and was synced before.
        with connection.os_errors(self._path), suppress(FileNotFoundError):
            wal = Wal(path.with_name(f"{path.name}-wal"))
            try:
                wal.sync()
            finally:
                wal.close()

    def queues(self, db: sqlite3.Connection) -> list[Queue]:
        return [
            Queue(number, name, _settings(text), topic is not None)
            for number, name, text, topic in db.execute(_QUEUES)
        ]

    def close(self) -> None:
        self._closed = True
        self._undo.close()


def _existing(path: Path) -> open_files.Inode:
    try:
        stat = path.stat()
    except FileNotFoundError:
        raise StoreMissing(f"{path}: there is no such file") from None
    except OSError as error:
        raise StoreReadOnly(f"{path}: it cannot be read here ({error})") from error
    if not path.is_file():
        raise StoreUnsupported(f"{path} is no ordinary file; name the file of a store")
    if stat.st_size == 0:
        raise StoreMissing(f"{path}: the file is empty")
    return stat.st_dev, stat.st_ino


def _settings(text: str) -> QueueSettings:
    try:
        return QueueSettings(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise StoreCorrupt(f"the settings of a queue cannot be read: {error}") from error
