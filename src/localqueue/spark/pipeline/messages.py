"""Silver ``messages``: every life that ended, from put to its end.

A dead letter's life ends when it dies. Requeued, it begins a new one.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from localqueue.spark.pipeline.definition import MOMENT, Definition, columns

ALIVE = pa.array(["ready", "delayed", "held", "inflight"])

MESSAGES = Definition(
    name="messages",
    description="Lives of messages that ended, one row each, with how and after how long.",
    schema=columns(
        ("store", pa.string()),
        ("shard", pa.string()),
        ("seq", pa.int64()),
        ("queue", pa.string()),
        ("message_id", pa.string()),
        ("outcome", pa.string()),
        ("attempts", pa.int64()),
        ("worker", pa.string()),
        ("error_type", pa.string()),
        ("error_text", pa.string()),
        ("fingerprint", pa.string()),
        ("enqueued_at", MOMENT),
        ("leased_at", MOMENT),
        ("ended_at", MOMENT),
        ("waited", pa.float64()),
        ("ran", pa.float64()),
        ("lived", pa.float64()),
        # More than one when a purge ended many lives with one event.
        ("n", pa.int64()),
    ),
    statistics=("store", "shard", "seq", "queue", "ended_at"),
    moment="ended_at",
)


def ended_lives(events: pa.RecordBatch) -> pa.RecordBatch:
    """The events after which a message is gone or dead, and was alive before, or never was."""
    rows = events.filter(_ends_a_life(events))
    lived = pc.divide(
        pc.subtract(rows["at"], rows["enqueued_at"]).cast(pa.int64()).cast(pa.float64()), 1e6
    )
    made = {"outcome": _outcome(rows), "attempts": rows["attempt"], "ended_at": rows["at"]}
    made["lived"] = pc.max_element_wise(lived, 0.0, skip_nulls=False)
    arrays = [
        made[field.name] if field.name in made else rows[field.name] for field in MESSAGES.schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGES.schema)


def _ends_a_life(events: pa.RecordBatch) -> pa.Array:
    kind, left, entered = events["kind"], events["from_state"], events["to_state"]
    died = pc.fill_null(pc.equal(entered, "dead"), False)
    ended = pc.and_(pc.is_in(left, value_set=ALIVE), pc.or_(died, pc.is_null(entered)))
    # A put to a full queue may be let go at once, or become a dead letter at once.
    never_lived = pc.and_(pc.is_null(left), pc.or_(pc.equal(kind, "dropped"), _put(kind, died)))
    return pc.or_(ended, never_lived)


def _put(kind: pa.Array, died: pa.Array) -> pa.Array:
    return pc.and_(pc.equal(kind, "enqueued"), died)


def _outcome(rows: pa.RecordBatch) -> pa.Array:
    return pc.if_else(pc.equal(rows["kind"], "enqueued"), "dead_lettered", rows["kind"])
