"""What there is to know about a file when something is slow, large or odd."""

from __future__ import annotations

import platform
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from localqueue.clock import SYSTEM_CLOCK
from localqueue.message import QueueStats
from localqueue.stores.protocol import JournalReader
from localqueue.stores.sqlite import network
from localqueue.stores.sqlite.companions import Companions
from localqueue.stores.sqlite.identity import Identity
from localqueue.stores.sqlite.operations.snapshot import Snapshot, in_one_snapshot
from localqueue.stores.sqlite.sql import SQL

LARGE_WAL = 64 * 1024 * 1024
LITTLE_ROOM = 64 * 1024 * 1024
LITTLE_SHARE = 0.05
LARGE_WASTE = 64 * 1024 * 1024
FIXED_WAL_RESET = (3, 51, 3)
"""From here on a checkpoint and a commit at the same moment cannot damage a file."""
PRAGMAS = (
    "journal_mode", "synchronous", "wal_autocheckpoint", "busy_timeout", "cache_size",
    "temp_store", "page_size", "encoding",
)  # fmt: skip


class Facts(NamedTuple):
    """What the store itself knows."""

    path: Path
    durability: str
    timeout: float
    stats: Callable[[float], Mapping[str, QueueStats]]
    """Of every queue, at a moment of store time."""
    readers: list[JournalReader]
    engine: Mapping[str, float]
    unposted: int
    """Events that stood in the daybook alone, before anything was asked for that posts them."""
    pragmas: Mapping[str, Any] | None
    """As in force on the connection that writes; None when it was busy until the timeout."""


def read_pragmas(db: sqlite3.Connection) -> dict[str, Any]:
    return {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS}


def diagnose(facts: Facts) -> dict[str, Any]:
    """Everything in one value that can be written as JSON; see ``SQLiteQueueStore.diagnostics``."""
    found: dict[str, Any] = {
        "versions": _versions(),
        "file": _file(facts),
        "settings": {
            "durability": facts.durability,
            "timeout": facts.timeout,
            "pragmas": None if facts.pragmas is None else dict(facts.pragmas),
        },
        "engine": dict(facts.engine),
        **in_one_snapshot(facts.path, facts.timeout, lambda snapshot: _inside(snapshot, facts)),
    }
    stats = facts.stats(found.pop("now"))
    found["queues"] = {name: stats[name].as_dict() for name in stats}
    found["warnings"] = _warnings(found)
    return found


def _versions() -> dict[str, Any]:
    from importlib.metadata import version

    return {
        "localqueue": version("localqueue"),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": platform.platform(),
    }


def _file(facts: Facts) -> dict[str, Any]:
    """Only looked at: opening it here would take the locks of those who have it open."""
    companions = Companions(facts.path)
    stat = companions.database.stat()
    disk = shutil.disk_usage(companions.database.parent)
    return {
        "path": str(facts.path),
        "real_path": str(companions.database),
        "device": stat.st_dev,
        "inode": stat.st_ino,
        "file_system": network.file_system(companions.database),
        "is_remote": network.is_remote(companions.database),
        "bytes": stat.st_size,
        "wal_bytes": _size(companions.wal),
        "daybook_bytes": _size(companions.daybook),
        "daybook_events": facts.unposted,
        "has_lock": companions.lock.exists(),
        "disk_bytes": disk.total,
        "disk_free_bytes": disk.free,
    }


def _inside(snapshot: Snapshot, facts: Facts) -> dict[str, Any]:
    db = snapshot.db
    pages, free, size, schema = (
        db.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size", "user_version")
    )
    now = _store_time(db)
    return {
        "now": now,
        "schema": schema,
        "pages": {"all": pages, "free": free, "free_bytes": free * size},
        "journal": _journal(db, facts.readers, now),
        "oldest_lease": _oldest_lease(db, now),
    }


def _store_time(db: sqlite3.Connection) -> float:
    """What time it is there, without opening its clock, which would write."""
    boot_id, offset = db.execute(SQL.read_clock).fetchone() or ("", 0.0)
    if boot_id == SYSTEM_CLOCK.boot_id():
        return SYSTEM_CLOCK.steady() + float(offset)
    (newest,) = db.execute(SQL.last_event_time).fetchone() or (0.0,)
    return max(SYSTEM_CLOCK.wall(), newest)


def _journal(db: sqlite3.Connection, readers: list[JournalReader], now: float) -> dict[str, Any]:
    identity = Identity(db.execute(SQL.identities).fetchall())
    (newest,) = db.execute(SQL.last_seq).fetchone() or (0,)
    oldest = db.execute(SQL.first_event).fetchone()
    (folded,) = db.execute(SQL.read_mark, ("fold",)).fetchone()
    unfolded = db.execute("SELECT count(*) FROM event WHERE seq > ?", (folded,)).fetchone()[0]
    kept = sum(n for _, _, _, n, _, _ in db.execute(SQL.kept))
    return {
        "events": kept + unfolded,
        "unfolded": unfolded,
        "end": identity.public(newest),
        "oldest_age_seconds": None if oldest is None else max(0.0, now - oldest[1]),
        "readers": [
            {
                "name": reader.name,
                "position": reader.position,
                "behind": _behind(db, identity.seq(reader.position) or 0),
                "age_seconds": max(0.0, now - reader.updated_at),
                "max_age": reader.max_age,
            }
            for reader in readers
        ],
    }


def _behind(db: sqlite3.Connection, seq: int) -> int:
    return int(db.execute("SELECT count(*) FROM event WHERE seq > ?", (seq,)).fetchone()[0])


def _oldest_lease(db: sqlite3.Connection, now: float) -> dict[str, Any] | None:
    found = db.execute(
        "SELECT q.name, m.leased_at, m.due_at, m.worker FROM message AS m"
        " JOIN queue AS q ON q.id = m.queue WHERE m.state = 3 ORDER BY m.leased_at LIMIT 1"
    ).fetchone()
    if found is None:
        return None
    queue, leased_at, due_at, worker = found
    return {
        "queue": queue,
        "worker": worker,
        "age_seconds": max(0.0, now - leased_at),
        "ends_in_seconds": due_at - now,
    }


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _warnings(found: Mapping[str, Any]) -> list[str]:
    """What somebody should look at, in sentences."""
    file, pages, pragmas = found["file"], found["pages"], found["settings"]["pragmas"]
    warnings = []
    if file["wal_bytes"] > LARGE_WAL:
        warnings.append(
            f"The -wal has grown to {file['wal_bytes']:,} bytes: something reads without a pause,"
            " or a backup is being made, and what is in it cannot go into the file."
        )
    if file["disk_free_bytes"] < max(LITTLE_ROOM, LITTLE_SHARE * file["disk_bytes"]):
        warnings.append(
            f"The disk is nearly full: {file['disk_free_bytes']:,} bytes are left. Without room,"
            " puts raise StoreFull; what is stored can still be taken out."
        )
    if file["is_remote"]:
        warnings.append(
            f"The file is on a network file system ({file['file_system']}), whose locks do not hold"
            " between hosts: only one host may use it."
        )
    if sqlite3.sqlite_version_info < FIXED_WAL_RESET and not file["has_lock"]:
        warnings.append(
            f"SQLite {sqlite3.sqlite_version} can damage a file when two processes commit and make"
            " a checkpoint at the same moment, and here no lock keeps them apart. Use SQLite"
            f" {'.'.join(map(str, FIXED_WAL_RESET))} or later, or one process."
        )
    if pages["free_bytes"] > LARGE_WASTE and pages["free"] * 2 > pages["all"]:
        warnings.append(
            f"More than half of the file is free ({pages['free_bytes']:,} bytes); vacuum() gives it"
            " back to the system."
        )
    if pragmas is None:
        warnings.append("The connection that writes was busy until the timeout.")
    elif pragmas["journal_mode"] != "wal" or not pragmas["synchronous"]:
        warnings.append(
            f"The file is used with journal_mode={pragmas['journal_mode']} and"
            f" synchronous={pragmas['synchronous']}, which this library does not ask for."
        )
    return warnings
