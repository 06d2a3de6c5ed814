"""Lakes that have what a store's journal has, brought there without a query: it takes no time."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from localqueue import PersistentQueue
from localqueue.clock import SYSTEM_CLOCK, StoreTime
from localqueue.spark.pipeline.events import EVENTS, STORE_DIGITS
from localqueue.spark.pipeline.feeds import claim
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.parquet_files import write_table
from localqueue.spark.pipeline.places import Feed, Place
from localqueue.stores.protocol import JournalEvent


def now(queue: PersistentQueue[Any]) -> datetime:
    """The store's time, which events have: a busy machine may have set it some milliseconds off."""
    when = StoreTime(SYSTEM_CLOCK, queue.store.open_clock(SYSTEM_CLOCK))
    return datetime.fromtimestamp(when.now(), UTC)


def archive(lake: Lake, queue: PersistentQueue[Any]) -> None:
    """Bring what is new in the journal to ``events``, as one file."""
    table = lake.create(EVENTS)
    end = queue.store.journal_end()
    place = Place(end[:STORE_DIGITS], "0")
    claim(table, Feed(), place.store)
    rows = [
        row
        for event in queue.store.journal(limit=100_000)
        if (row := _row(event))["seq"] > table.position(Feed(), Place(row["store"], "0"))
    ]
    file = write_table(
        table.location, pa.Table.from_pylist(rows, schema=EVENTS.schema), EVENTS.statistics
    )
    assert table.append([file], Feed(), {place: int(end[STORE_DIGITS:], 16)})


def _row(event: JournalEvent) -> dict[str, Any]:
    row = event._asdict()
    for moment in ("at", "enqueued_at", "leased_at"):
        if row[moment] is not None:
            row[moment] = datetime.fromtimestamp(row[moment], UTC)
    body, detail = row.pop("body"), row.pop("detail")
    return row | {
        "store": event.position[:STORE_DIGITS],
        "shard": "0",
        "seq": int(event.position[STORE_DIGITS:], 16),
        "value": None if body is None else body.decode(),
        "detail": None if detail is None else json.dumps(detail),
    }
