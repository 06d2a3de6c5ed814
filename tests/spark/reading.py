"""Reads without Spark around them: what tasks would give, and what it should be."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import Filter
from pyspark.sql.types import StructType

from localqueue.codec import decode_headers
from localqueue.spark.options import Options
from localqueue.spark.read.scan import ReadTask, Source, open_source, read_task
from localqueue.spark.read.schema import spark_schema
from localqueue.stores.protocol import JournalEvent, QueueStore, StoredMessage

Row = dict[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def options_of(url: str, **options: str) -> Options:
    return Options.parse({"url": url, **options})


def source_of(options: Options, schema: StructType | None = None) -> Source:
    made = spark_schema(options) if schema is None else schema
    assert isinstance(made, StructType)
    return open_source(options, made)


def plan(options: Options, filters: Sequence[Filter] = ()) -> list[ReadTask]:
    """The tasks of a batch read."""
    with source_of(options) as source:
        if options.content == "journal":
            return source.plan_journal(source.journal_oldest(), source.journal_end(), filters)
        return source.plan_messages(filters)


def rows_of(tasks: Iterable[ReadTask]) -> list[Row]:
    return [row for task in tasks for batch in read_task(task) for row in batch.to_pylist()]


def read(url: str, filters: Sequence[Filter] = (), **options: str) -> list[Row]:
    return rows_of(plan(options_of(url, **options), filters))


def message_row(message: StoredMessage) -> Row:
    """What a read should give of a message that the store shows like this; without ``body``."""
    shown = decode_headers(message.headers)
    return {
        "id": message.id,
        "queue": message.queue,
        "state": str(message.state),
        "value": message.body.decode() if message.codec == "json" else None,
        "headers": sorted(shown.items()) if shown else None,
        "codec": message.codec,
        "priority": message.priority,
        "ordering_key": message.ordering_key,
        "dedupe_key": message.dedupe_key,
        "attempts": message.attempts,
        "failures": message.failures,
        "crashes": message.crashes,
        "created_at": moment(message.created_at),
        "available_at": moment(message.available_at),
        "expires_at": moment(message.expires_at),
        "leased_until": moment(message.leased_until),
        "leased_by": message.leased_by,
        "failed_at": moment(message.failed_at),
        "last_error": message.last_error,
    }


def event_row(event: JournalEvent) -> Row:
    """What a read should give of an event; without ``body``."""
    return {
        "position": event.position,
        "seq": int(event.position[16:], 16),
        "shard": "0",
        "at": moment(event.at),
        "queue": event.queue,
        "message_id": event.message_id,
        "kind": event.kind,
        "from_state": event.from_state,
        "to_state": event.to_state,
        "n": event.n,
        "attempt": event.attempt,
        "worker": event.worker,
        "by": event.by,
        "error_type": event.error_type,
        "error_text": event.error_text,
        "fingerprint": event.fingerprint,
        "enqueued_at": moment(event.enqueued_at),
        "leased_at": moment(event.leased_at),
        "waited": event.waited,
        "ran": event.ran,
        "value": None if event.body is None else event.body.decode(),
        "detail": event.detail,
    }


def comparable(row: Row) -> Row:
    """A row that was read, with its JSON read and its times to compare; see ``message_row``."""
    found = dict(row)
    for name in ("last_error", "detail"):
        if found.get(name) is not None:
            found[name] = json.loads(found[name])
    if found.get("headers") is not None:
        found["headers"] = sorted(dict(found["headers"]).items())
    return found


def all_messages(store: QueueStore, rows: Iterable[Row]) -> list[Row]:
    """The messages of these rows as the store itself shows each of them."""
    shown = []
    for row in rows:
        message = store.read(row["queue"], row["id"])
        assert message is not None, row
        shown.append(message_row(message))
    return shown


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["queue"], row["id"]))


def moment(seconds: float | None) -> datetime | None:
    """A time of the store to the microsecond."""
    if seconds is None:
        return None
    return _EPOCH + timedelta(microseconds=int(seconds * 1_000_000.0 + 0.5))
