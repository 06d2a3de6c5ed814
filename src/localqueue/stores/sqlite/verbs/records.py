"""Records with compare-and-set."""

from __future__ import annotations

from collections.abc import Sequence

from localqueue.checks import check_key
from localqueue.errors import RecordConflict
from localqueue.stores.records import Record, RecordChange
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.view import Transaction, View

SLICE = 1000


def load_record(view: View, kind: str, key: str, now: float) -> Record | None:
    found = view.db.execute(SQL.load_record, (kind, key)).fetchone()
    if found is None or (found[4] is not None and found[4] <= now):
        return None
    return Record(*found)


def conflicts(tx: Transaction, changes: Sequence[RecordChange]) -> list[RecordChange]:
    """Those whose record has another version than expected."""
    found = []
    for change in changes:
        if change.expect is not None:
            record = load_record(tx, change.kind, change.key, tx.now)
            if (record.version if record else 0) != change.expect:
                found.append(change)
    return found


def change_records(tx: Transaction, changes: Sequence[RecordChange]) -> list[int]:
    """Apply all or none; the new versions."""
    for change in changes:
        check_key("record kind", change.kind)
        check_key("record key", change.key)
    for change in conflicts(tx, changes):
        raise RecordConflict(
            f"{change.kind} record {change.key!r} does not have version {change.expect}"
        )
    return [_apply(tx, change) for change in changes]


def _apply(tx: Transaction, change: RecordChange) -> int:
    if change.value is None:
        tx.db.execute(SQL.delete_record, (change.kind, change.key))
        return 0
    record = load_record(tx, change.kind, change.key, tx.now)
    version = record.version + 1 if record else 1
    expires_at = None if change.ttl is None else tx.now + change.ttl
    tx.db.execute(SQL.save_record, (change.kind, change.key, change.value, version, expires_at))
    return version


def scan_records(
    view: View, kind: str, prefix: str, after: str, limit: int, now: float
) -> list[Record]:
    """In the order of their keys; the prefix is where the scan starts and ends."""
    found: list[Record] = []
    if prefix and prefix > after:
        exact = load_record(view, kind, prefix, now)
        found += [exact] if exact else []
        after = prefix
    for row in view.db.execute(SQL.scan_records, (kind, after, -1)):
        record = Record(*row)
        if len(found) >= limit or not record.key.startswith(prefix):
            break
        if record.expires_at is None or record.expires_at > now:
            found.append(record)
    return found[:limit]


def prune_records(tx: Transaction, kind: str) -> int:
    """Remove a slice of the expired ones; how many."""
    keys = tx.db.execute(SQL.expired_records, (tx.now, kind, SLICE)).fetchall()
    tx.db.executemany(SQL.delete_record, [(kind, key) for (key,) in keys])
    return len(keys)
