"""Lives of messages in the tables of a lake, as a pipeline would bring them, without Spark."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa

from localqueue.spark.pipeline.attempts import ATTEMPTS, ended_leases
from localqueue.spark.pipeline.events import EVENTS
from localqueue.spark.pipeline.feeds import claim
from localqueue.spark.pipeline.lake import Lake
from localqueue.spark.pipeline.messages import MESSAGES, ended_lives
from localqueue.spark.pipeline.minutes import MINUTES
from localqueue.spark.pipeline.parquet_files import write_table
from localqueue.spark.pipeline.places import Feed, Place
from tests.pipeline.journals import START, STORE

TABLES = ((EVENTS, None), (ATTEMPTS, ended_leases), (MESSAGES, ended_lives))


def bring(
    lake: Lake, messages: int, *, failed: int = 0, store: str = STORE, feed: Feed | None = None
) -> None:
    """So many messages were worked on by w1, and the first of them failed for good."""
    feed, place = feed or Feed(), Place(store, "0")
    lake.create(MINUTES)
    first = lake.create(EVENTS).position(feed, place) + 1
    rows = [_end(first + n, store, feed, fails=n < failed) for n in range(messages)]
    events = pa.RecordBatch.from_pylist(rows, schema=EVENTS.schema)
    for definition, made in TABLES:
        table = lake.create(definition)
        if definition is EVENTS:
            claim(table, feed, store)
        of_table = events if made is None else made(events)
        file = write_table(table.location, pa.Table.from_batches([of_table]), definition.statistics)
        assert table.append([file], feed, {place: first + messages - 1})


def _end(seq: int, store: str, feed: Feed, *, fails: bool) -> dict[str, Any]:
    at = START + timedelta(seconds=seq)
    return {
        "store": store,
        "shard": "0",
        "seq": seq,
        "position": f"{store}{seq:016x}",
        "message_id": f"{store}{seq:016x}",
        "at": at,
        "queue": feed.queues[0] if feed.queues else "jobs",
        "kind": "dead_lettered" if fails else "acked",
        "from_state": "inflight",
        "to_state": "dead" if fails else None,
        "n": 1,
        "attempt": 1,
        "worker": "w1",
        "error_type": "ValueError" if fails else None,
        "enqueued_at": at - timedelta(seconds=5),
        "leased_at": at - timedelta(seconds=2),
        "waited": 3.0,
        "ran": 2.0,
    }
