"""Values that are large or shared: kept once, and gone when nothing refers to them."""

from __future__ import annotations

from localqueue.errors import StoreCorrupt
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.view import Transaction

LARGEST_INLINE = 4096
"""A claim rewrites its row, so larger values stand elsewhere."""


def add_body(tx: Transaction, number: int, value: bytes, uses: int) -> None:
    tx.db.execute(SQL.add_body, (number, value))
    tx.db.execute(SQL.use_body, (number, uses))


def use_body(tx: Transaction, number: int) -> None:
    tx.db.execute(SQL.use_body, (number, 1))


def drop_body(tx: Transaction, number: int, uses: int = 1) -> None:
    """Give up a reference; the last one takes the value with it."""
    found = tx.db.execute(SQL.body_uses, (number,)).fetchone()
    if found is None:
        raise StoreCorrupt(f"body {number} is referred to but not counted")
    if found[0] > uses:
        tx.db.execute(SQL.use_body, (number, -uses))
    else:
        tx.db.execute(SQL.delete_body_use, (number,))
        tx.db.execute(SQL.delete_body, (number,))
