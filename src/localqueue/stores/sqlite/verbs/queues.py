"""Queue rows: made at first use, and what is configured there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from localqueue.checks import check_queue_name
from localqueue.errors import ConfigurationError, InvalidArgument
from localqueue.stores.settings import DEFAULT_SETTINGS, QueueSettings
from localqueue.stores.sqlite.sql import SQL
from localqueue.stores.sqlite.states import ACTORS, CONFIGURED
from localqueue.stores.sqlite.verbs.log import change_fanout
from localqueue.stores.sqlite.view import NEW_QUEUES, QueueRow, Transaction, View


def use_queue(tx: Transaction, name: str) -> QueueRow:
    """The queue's row, made when this is its first use."""
    row = tx.queue(name)
    if row is None:
        check_queue_name(name)
        row = make_queue(tx, name, DEFAULT_SETTINGS)
    return row


def make_queue(tx: Transaction, name: str, settings: QueueSettings) -> QueueRow:
    """A new row. The first configuration is told in its event, like every later one."""
    kept = settings.differences()
    added = tx.db.execute(SQL.add_queue, (name, json.dumps(kept, sort_keys=True), 1, None))
    assert added.lastrowid is not None
    tx.event(CONFIGURED, added.lastrowid, detail=kept)
    tx.ready.add(NEW_QUEUES)
    tx.room.add(NEW_QUEUES)
    row = tx.queue(name)
    assert row is not None
    return row


def configure(
    tx: Transaction, name: str, changes: Mapping[str, Any], by: str
) -> tuple[QueueSettings, int]:
    """Write these settings where they differ from the row's; the last one wins."""
    check_queue_name(name)
    if by not in ACTORS:
        raise InvalidArgument(f"by must be one of {', '.join(ACTORS)}, not {by!r}")
    row = tx.queue(name)
    if row is None:
        row = make_queue(tx, name, DEFAULT_SETTINGS.changed(changes))
        return row.settings, row.version
    settings = row.settings.changed(changes)
    if settings == row.settings:
        return row.settings, row.version
    if settings.fanout is not None and row.topic is not None:
        raise ConfigurationError(
            f"{name!r} is a subscriber of a topic and cannot be a topic itself"
        )
    if settings.fanout != row.settings.fanout:
        change_fanout(tx, row, settings.fanout)
    text = json.dumps(settings.differences(), sort_keys=True)
    tx.db.execute(SQL.write_settings, (text, row.version + 1, row.id))
    changed = {
        key: value
        for key, value in settings.as_dict().items()
        if value != getattr(row.settings, key)
    }
    tx.event(CONFIGURED, row.id, by=ACTORS.index(by), detail=changed)
    tx.forget(name)
    # A resumed queue has work again, and a larger one has room.
    # Also when there is no bound any more: those who wait came when there was one.
    tx.ready.add(row.id)
    tx.room.add(row.id)
    return settings, row.version + 1


def settings(view: View, name: str) -> tuple[QueueSettings, int] | None:
    row = view.queue(name)
    return None if row is None else (row.settings, row.version)


def queue_names(view: View) -> list[str]:
    return [name for _, name in view.db.execute(SQL.queue_names)]


def see_worker(tx: Transaction, name: str, worker: str) -> None:
    """Remember when the worker was last seen."""
    tx.db.execute(SQL.see_worker, (use_queue(tx, name).id, worker, tx.now))
