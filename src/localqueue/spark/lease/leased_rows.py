"""Leased messages as parts of a batch: the rows ride in the part itself, as Arrow.

So a task reads them on any host, however often it is tried, and the file of a SQLite store is
touched beside the driver only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from localqueue.spark.options import Options
from localqueue.spark.payload.columns import Payload
from localqueue.spark.read.arrow_columns import header_maps, json_texts, timestamps
from localqueue.spark.read.schema import chosen_columns, payload_fields
from localqueue.stores.protocol import StoredMessage

PART_BYTES = 1024 * 1024
"""About what a task may carry before Spark calls it very large."""
PAYLOAD = ("id", "value")
"""The columns that those of the payload are made of."""


class LeasedRows(InputPartition):
    """A part of a batch: columns of messages as an Arrow stream."""

    def __init__(self, rows: bytes, count: int) -> None:
        self.rows = rows
        self.count = count

    def read(self, options: Options, schema: StructType) -> Iterator[pa.RecordBatch]:
        """The rows with the columns of Spark's schema; those of the payload are made here.

        PayloadMismatch when a payload does not fit them.
        """
        names = chosen_columns(options)
        fields = payload_fields(options, schema)
        payload = Payload(fields, options.mode) if fields.fields else None
        arrow = to_arrow_schema(schema, timezone="UTC")
        with pa.ipc.open_stream(self.rows) as stream:
            for rows in stream:
                columns = [rows.column(name) for name in names]
                if payload is not None:
                    columns += payload.columns(rows.column("value"), partial(rows.column, "id"))
                yield pa.RecordBatch.from_arrays(columns, schema=arrow)

    def __repr__(self) -> str:
        return f"LeasedRows({self.count} messages)"


def rows_in_parts(messages: Sequence[StoredMessage], options: Options) -> list[LeasedRows]:
    """Parts of about ``PART_BYTES`` at most; ``minPartitions`` at least, if rows go round."""
    if not messages:
        return []
    names = list(chosen_columns(options))
    if options.payload_schema is not None:
        names += [name for name in PAYLOAD if name not in names]
    size = sum(len(message.body) for message in messages)
    wanted = max(options.min_partitions or 1, -(-size // PART_BYTES))
    step = -(-len(messages) // wanted)
    columns = _COLUMNS | {"value": partial(_values, strict=options.mode == "FAILFAST")}
    makers = {name: columns[name] for name in names}
    return [_part(messages[at : at + step], makers) for at in range(0, len(messages), step)]


def _part(messages: Sequence[StoredMessage], makers: Mapping[str, Column]) -> LeasedRows:
    columns = [make(messages) for make in makers.values()]
    rows = pa.RecordBatch.from_arrays(columns, names=list(makers))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return LeasedRows(sink.getvalue().to_pybytes(), len(messages))


Column = Callable[[Sequence[StoredMessage]], pa.Array]


def _texts(field: str) -> Column:
    return lambda messages: pa.array([getattr(each, field) for each in messages], pa.string())


def _numbers(field: str) -> Column:
    return lambda messages: pa.array([getattr(each, field) for each in messages], pa.int32())


def _times(field: str) -> Column:
    return lambda messages: timestamps(
        pa.array([getattr(each, field) for each in messages], pa.float64())
    )


def _bodies(messages: Sequence[StoredMessage]) -> pa.Array:
    return pa.array([each.body for each in messages], pa.binary())


def _values(messages: Sequence[StoredMessage], *, strict: bool = True) -> pa.Array:
    """The JSON texts; null for other codecs, and unless ``strict`` for what is no text."""
    bodies = pa.array(
        [each.body if each.codec == "json" else None for each in messages], pa.binary()
    )
    return json_texts(bodies, lambda: _texts("id")(messages), strict=strict)


def _headers(messages: Sequence[StoredMessage]) -> pa.Array:
    return header_maps(pa.array([each.headers for each in messages], pa.binary()))


def _errors(messages: Sequence[StoredMessage]) -> pa.Array:
    errors = [None if each.last_error is None else json.dumps(each.last_error) for each in messages]
    return pa.array(errors, pa.string())


_COLUMNS: dict[str, Column] = {
    "id": _texts("id"),
    "queue": _texts("queue"),
    "state": _texts("state"),
    "value": _values,
    "headers": _headers,
    "codec": _texts("codec"),
    "priority": _numbers("priority"),
    "ordering_key": _texts("ordering_key"),
    "dedupe_key": _texts("dedupe_key"),
    "attempts": _numbers("attempts"),
    "failures": _numbers("failures"),
    "crashes": _numbers("crashes"),
    "created_at": _times("created_at"),
    "available_at": _times("available_at"),
    "expires_at": _times("expires_at"),
    "leased_until": _times("leased_until"),
    "leased_by": _texts("leased_by"),
    "failed_at": _times("failed_at"),
    "last_error": _errors,
    "body": _bodies,
}
"""How each column is made of messages."""
