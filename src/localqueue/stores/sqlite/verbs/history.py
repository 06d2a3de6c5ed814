"""A living message's attempts: the ended ones from the side table, the rest from the journal."""

from __future__ import annotations

import json
from typing import Any

from localqueue.stores.sqlite.rows import MessageRow
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.view import View


def ended_attempts(view: View, row: MessageRow) -> list[dict[str, Any]]:
    """Leases and how they ended, oldest first; the present lease is not among them."""
    if not row.ended:
        return []
    found = view.db.execute(SQL.attempts, (row.id,)).fetchall()
    return [entry for (entries,) in found for entry in _read(entries)]


def _read(entries: str) -> list[dict[str, Any]]:
    """Damage to the history must not keep its message from being delivered."""
    try:
        return [dict(entry) for entry in json.loads(entries)]
    except (TypeError, ValueError):
        return []
