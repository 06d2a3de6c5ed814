"""Opening a file: whose it is, which version, and how SQLite is told to treat it."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from localqueue.errors import (
    LocalQueueError,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreMoved,
    StoreReadOnly,
    StoreUnsupported,
)
from localqueue.stores.sqlite import open_files
from localqueue.stores.sqlite.daybook.file import DaybookFile
from localqueue.stores.sqlite.durability import SYNCS_ITSELF, sync_folder
from localqueue.stores.sqlite.identity import new_bits
from localqueue.stores.sqlite.network import file_system, is_remote
from localqueue.stores.sqlite.new_life import begin_new_life
from localqueue.stores.sqlite.sql import APPLICATION_ID, SCHEMA_VERSION, SQL, migration, schema

OLDEST_SQLITE = (3, 37, 0)
"""The first with STRICT tables."""
SYNCHRONOUS = {"full": 2, "relaxed": 1}
CHECKPOINT_AT = 2000
"""Pages in the -wal from which on a commit moves them into the database: about 8 MB.

A put, its lease and its ack write ten. At half of this, nearly one message in a hundred would wait
for a checkpoint on its way; at twice this, the -wal would need all of the ballast on a full disk.
"""
_ORIGINAL_TABLES = {"queue_messages", "queue_sequences"}

_BY_CODE: dict[int, type[StoreError]] = {
    sqlite3.SQLITE_BUSY: StoreBusy,
    sqlite3.SQLITE_LOCKED: StoreBusy,
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_CORRUPT: StoreCorrupt,
    sqlite3.SQLITE_NOTADB: StoreCorrupt,
    sqlite3.SQLITE_READONLY: StoreReadOnly,
    sqlite3.SQLITE_PERM: StoreReadOnly,
    sqlite3.SQLITE_CANTOPEN: StoreReadOnly,
}
_SENTENCES: dict[type[StoreError], str] = {
    StoreBusy: "another process held it for longer than the timeout",
    StoreFull: "the disk is full; what was stored is intact",
    StoreCorrupt: "it is damaged or not a SQLite database; nothing was changed",
    StoreReadOnly: "it cannot be made or opened for writing here",
}


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

DRIVER_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite and its driver raise; the second when the text of a damaged file is no text."""


def translate(error: Exception, where: str) -> StoreError:
    """The driver's error as one of ours; the driver's own stays its cause."""
    if isinstance(error, OSError):
        return _refused(error, where, StoreError)
    if isinstance(error, UnicodeDecodeError):
        return StoreCorrupt(f"{where}: {_SENTENCES[StoreCorrupt]} ({error})")
    kind = _BY_CODE.get(_code(error), StoreError)
    return kind(f"{where}: {_SENTENCES.get(kind, 'SQLite failed')} ({error})")


@contextlib.contextmanager
def translated(where: str) -> Iterator[None]:
    try:
        yield
    except DRIVER_ERRORS as error:
        raise translate(error, where) from error


def check_sqlite() -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise StoreUnsupported(
            f"this Python has SQLite {sqlite3.sqlite_version}; localqueue needs {needed} or later"
        )


def is_full(error: Exception) -> bool:
    """Whether the disk has no room left."""
    if isinstance(error, OSError):
        return error.errno in _NO_ROOM
    return _code(error) == sqlite3.SQLITE_FULL


def is_doubtful(error: Exception) -> bool:
    """Whether a fault of the disk, not what is stored there, may be the reason."""
    return _code(error) in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _code(error: Exception) -> int:
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


@contextlib.contextmanager
def os_errors(path: Path) -> Iterator[None]:
    """What the system says of the files beside it, as one of our errors."""
    try:
        yield
    except OSError as error:
        raise _refused(error, str(path), StoreReadOnly) from error


def _refused(error: OSError, where: str, kind: type[StoreError]) -> StoreError:
    if error.errno in _NO_ROOM:
        return StoreFull(f"{where}: {_SENTENCES[StoreFull]} ({error})")
    return kind(f"{where}: {_SENTENCES.get(kind, 'the system refused it')} ({error})")


def prepare_file(
    path: Path, *, network: bool = False, patience: float = open_files.PATIENCE
) -> open_files.Inode:
    """Make the file when there is none, recognise it otherwise; its device and inode.

    A file that is not ours, or newer than this release, is refused before anything is written.
    ``patience`` is how long to wait for another library that reads it in this process.
    """
    check_sqlite()
    with os_errors(path):
        if not path.exists():
            _refuse_to_lose_what_is_beside(path)
            _create(path)
        elif not path.is_file():
            kind = "a directory" if path.is_dir() else "no ordinary file"
            raise StoreUnsupported(f"{path} is {kind}; name a file")
        elif path.stat().st_size > 0:
            recognise(path, patience)
        if not os.access(path, os.R_OK | os.W_OK):
            # SQLite would open it all the same, and leave a -wal that its owner cannot write.
            raise StoreReadOnly(f"{path}: it may not be written here")
        stat = path.stat()
        if not network and is_remote(path):
            raise StoreUnsupported(
                f"{path} is on a network file system ({file_system(path)}), where the locks of"
                " SQLite do not hold; use a local disk, or say network_file_system=True if only one"
                " host uses the file"
            )
    return stat.st_dev, stat.st_ino


def connect(path: Path, *, durability: str, timeout: float) -> sqlite3.Connection:
    """A connection that writes, on a file that is prepared."""
    db = sqlite3.connect(
        f"{path.as_uri()}?mode=rw",
        uri=True,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        _turn_on_wal(db, timeout)
        _set(db, "synchronous", SYNCHRONOUS["relaxed" if SYNCS_ITSELF else durability])
        _set(db, "wal_autocheckpoint", CHECKPOINT_AT)
        configure(db)
    except BaseException:
        db.close()
        raise
    return db


def configure(db: sqlite3.Connection) -> None:
    """What holds for every connection, also one in memory."""
    _set(db, "temp_store", 2)
    _set(db, "cache_size", -16384)


def connect_to_read(path: Path, *, timeout: float) -> sqlite3.Connection:
    db = sqlite3.connect(
        f"{path.as_uri()}?mode=rw",
        uri=True,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
    )
    _set(db, "query_only", 1)
    _set(db, "temp_store", 2)
    return db


def bring_up_to_date(db: sqlite3.Connection, where: str) -> None:
    """Make the schema in a new file, migrate an older one, or begin the life of a copy.

    All of it is one transaction.
    """
    try:
        db.execute("BEGIN IMMEDIATE")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise _newer(where, version)
        if version == 0:
            _run_script(db, schema())
            db.execute(SQL.add_identity, (0, new_bits()))
        else:
            for step in range(version + 1, SCHEMA_VERSION + 1):
                _run_script(db, migration(step))
        if version != SCHEMA_VERSION:
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        begin_new_life(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def check_same_file(path: str, inode: tuple[int, int]) -> None:
    """A deleted or replaced file must not swallow what is put."""
    try:
        # At least once in every transaction: that of Path takes twice as long.
        stat = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        raise StoreMoved(
            f"{path} was deleted while it was open; nothing is stored there any more. If it was"
            f" moved, {path}-wal and {path}-daybook, where they are there, belong beside it: the"
            " newest messages are in them"
        ) from None
    except OSError as error:
        raise StoreMoved(f"{path} cannot be reached any more ({error})") from error
    if (stat.st_dev, stat.st_ino) != inode:
        raise StoreMoved(
            f"{path} was replaced by another file while it was open; open the store anew"
        )


def _refuse_to_lose_what_is_beside(path: Path) -> None:
    """SQLite throws away a -wal whose database is not there, with what was committed last.

    A new database would not know a daybook that is there, with what was noted last.
    """
    for ending, is_filled in (("-wal", _has_bytes), ("-daybook", _has_entries)):
        beside = path.with_name(f"{path.name}{ending}")
        # Somebody may be making both just now.
        if is_filled(beside) and not path.exists():
            raise StoreMoved(
                f"{path} is gone, but {beside} is there and may hold its newest messages: put both"
                " back together, or remove it to begin anew"
            )


def _has_bytes(wal: Path) -> bool:
    try:
        return wal.stat().st_size > 0
    except FileNotFoundError:
        return False


def _has_entries(daybook: Path) -> bool:
    """Which of them are posted only the database tells."""
    file = DaybookFile.open(daybook)
    if file is None:
        return False
    try:
        return file.holds_entries()
    finally:
        file.close()


def _create(path: Path) -> None:
    new = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    # The names must survive a power cut before the first message is answered for.
    for folder in new:
        sync_folder(folder.parent)


def recognise(path: Path, patience: float = open_files.PATIENCE) -> None:
    """Refuse a file that is not ours; read only, so that it stays as it is."""
    stat = path.stat()
    if stat.st_size == 1:
        # SQLite would take it for an empty file and write over it.
        raise StoreCorrupt(f"{path}: it is not a SQLite database; nothing was changed")
    # Closing it would take the locks away from another library that has it.
    with open_files.shared((stat.st_dev, stat.st_ino), patience):
        _refuse_others(path)


def _refuse_others(path: Path) -> None:
    # As immutable first: SQLite would put a -wal and a -shm beside a file of somebody else.
    with_wal = path.with_name(f"{path.name}-wal").exists()
    with translated(str(path)):
        try:
            found = _look(path, "mode=ro&immutable=1")
        except sqlite3.DatabaseError:
            if not with_wal:
                raise
            found = _NOTHING
        if found == _NOTHING and with_wal:
            # What was written last is in the -wal only.
            found = _look(path, "mode=ro")
    application, version, tables = found
    if application == APPLICATION_ID:
        if version > SCHEMA_VERSION:
            raise _newer(str(path), version)
        return
    if tables >= _ORIGINAL_TABLES:
        raise StoreUnsupported(
            f"{path} was written by an earlier, different package of this name (its schema"
            f" version {version}); drain it with that package, and give this one a new path"
        )
    if application or tables or version:
        raise StoreUnsupported(
            f"{path} belongs to another application; give the queue its own path"
        )


_NOTHING: tuple[int, int, frozenset[str]] = (0, 0, frozenset())


def _look(path: Path, how: str) -> tuple[int, int, frozenset[str]]:
    """Application id, version and, of a file that is not ours, the tables."""
    db = sqlite3.connect(f"{path.as_uri()}?{how}", uri=True, timeout=15.0)
    try:
        tables = frozenset(row[0] for row in db.execute("SELECT name FROM sqlite_master"))
        # After them: a checkpoint may bring a new file's tables and its name while one looks, and
        # tables without a name would be somebody else's.
        version = db.execute("PRAGMA user_version").fetchone()[0]
        application = db.execute("PRAGMA application_id").fetchone()[0]
        return application, version, frozenset() if application == APPLICATION_ID else tables
    finally:
        db.close()


def _newer(where: str, version: int) -> LocalQueueError:
    return StoreUnsupported(
        f"{where}: unsupported SQLite queue schema version {version}; this release knows up to"
        f" {SCHEMA_VERSION}. Upgrade localqueue to open it"
    )


def _turn_on_wal(db: sqlite3.Connection, timeout: float) -> None:
    """SQLite itself does not wait here when two processes make a new file at the same moment."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return _set(db, "journal_mode", "wal")
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() >= deadline:
                raise
        time.sleep(0.005)


def _set(db: sqlite3.Connection, pragma: str, value: str | int) -> None:
    """Set a pragma and compare its answer: SQLite ignores what it cannot do."""
    db.execute(f"PRAGMA {pragma} = {value}")
    answer = db.execute(f"PRAGMA {pragma}").fetchone()
    if answer is None or answer[0] != value:
        raise StoreError(f"SQLite did not accept PRAGMA {pragma} = {value}: it answers {answer}")


def _run_script(db: sqlite3.Connection, script: str) -> None:
    """Statement by statement: executescript would commit the transaction first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""
