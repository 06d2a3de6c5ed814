"""Silver ``attempts``: every lease that ended, with how long it waited and ran."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from localqueue.spark.pipeline.choosing import chosen
from localqueue.spark.pipeline.definition import MOMENT, Definition, columns

ATTEMPTS = Definition(
    name="attempts",
    description="Leases that ended: acked, released, expired, dead-lettered, cancelled or purged.",
    schema=columns(
        ("store", pa.string()),
        ("shard", pa.string()),
        ("seq", pa.int64()),
        ("queue", pa.string()),
        ("message_id", pa.string()),
        ("attempt", pa.int64()),
        ("worker", pa.string()),
        ("outcome", pa.string()),
        ("error_type", pa.string()),
        ("error_text", pa.string()),
        ("fingerprint", pa.string()),
        ("enqueued_at", MOMENT),
        ("leased_at", MOMENT),
        ("ended_at", MOMENT),
        ("waited", pa.float64()),
        ("ran", pa.float64()),
        # More than one when a purge took many leases with one event.
        ("n", pa.int64()),
    ),
    statistics=("store", "shard", "seq", "queue", "ended_at"),
    moment="ended_at",
)


def ended_leases(events: pa.RecordBatch) -> pa.RecordBatch:
    """The events that took a message out of a worker's hands. They carry the whole lease."""
    left = pc.equal(events["from_state"], "inflight")
    stays = pc.fill_null(pc.equal(events["to_state"], "inflight"), False)
    ended = pc.and_(pc.fill_null(left, False), pc.invert(stays))
    return chosen(events, ended, ATTEMPTS.schema, {"outcome": "kind", "ended_at": "at"})
