"""Bronze ``events``: the journal as it is, one row per transition."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from localqueue.spark.pipeline.definition import MOMENT, Definition, columns

STORE_DIGITS = 16
"""A position begins with so many hex digits of its store."""

EVENTS = Definition(
    name="events",
    description="What happened in the queues: the journal, one row per transition.",
    schema=columns(
        ("store", pa.string()),
        ("shard", pa.string()),
        ("seq", pa.int64()),
        ("position", pa.string()),
        ("at", MOMENT),
        ("queue", pa.string()),
        ("message_id", pa.string()),
        ("kind", pa.string()),
        ("from_state", pa.string()),
        ("to_state", pa.string()),
        ("n", pa.int64()),
        ("attempt", pa.int64()),
        ("worker", pa.string()),
        ("by", pa.string()),
        ("error_type", pa.string()),
        ("error_text", pa.string()),
        ("fingerprint", pa.string()),
        ("enqueued_at", MOMENT),
        ("leased_at", MOMENT),
        ("waited", pa.float64()),
        ("ran", pa.float64()),
        ("value", pa.string()),
        ("detail", pa.string()),
    ),
    statistics=("store", "shard", "seq", "at", "queue"),
    moment="at",
)


def from_journal(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of ``format("localqueue")`` with ``content=journal`` as rows of this table.

    A row whose position is missing or foreign to the format has an empty ``store``; it is for
    ``quarantine`` to say so.
    """
    position = batch["position"].cast(pa.string())
    store = pc.utf8_slice_codeunits(pc.fill_null(position, ""), 0, STORE_DIGITS)
    arrays = [
        store if field.name == "store" else batch[field.name].cast(field.type)
        for field in EVENTS.schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=EVENTS.schema)


def events_again(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of this table as Spark hands them out, with the table's own types."""
    arrays = [batch[field.name].cast(field.type) for field in EVENTS.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=EVENTS.schema)
