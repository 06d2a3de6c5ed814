"""From rows to messages, in two halves: tasks make columns of bytes, the driver makes puts of them.

All that can be wrong with a row is found in the task, where there are many; what is wrong with a
row for its queue is told by the facts that come with the columns. So the driver looks at no value.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from localqueue.checks import (
    HIGHEST_PRIORITY,
    LONGEST_DELAY,
    LONGEST_KEY,
    check_queue_name,
)
from localqueue.codec import JSON_CODEC, encode_headers
from localqueue.errors import InvalidArgument, InvalidMessage
from localqueue.spark.write.bad_row import BadRow
from localqueue.spark.write.json_text import check_texts
from localqueue.spark.write.json_values import Convert, converter
from localqueue.spark.write.put_columns import PutColumns
from localqueue.stores.protocol import Put

_TYPES = {
    "body": pa.large_binary(),
    "queue": pa.string(),
    "headers": pa.binary(),
    "priority": pa.int32(),
    "delay": pa.float64(),
    "ttl": pa.float64(),
    "dedupe_key": pa.string(),
    "fingerprint": pa.int64(),
    "ordering_key": pa.string(),
}
_NULL = b"\xff"
"""Stands for null in a digest: no text has it."""
_put = partial(tuple.__new__, Put)
"""``Put._make`` without a function of Python's own in between: every row comes through here."""


@dataclass(slots=True)
class Facts:
    """What is known of the rows for one queue without looking at them."""

    rows: int = 0
    digest: int = 0
    """Of all columns, whatever the order of the rows: other rows have another one."""
    priority: bool = False
    """Whether one of them has a priority; and so on."""
    ordering_key: bool = False
    delay: bool = False

    def add(self, other: Facts) -> None:
        self.rows += other.rows
        self.digest = (self.digest + other.digest) % 2**64
        self.priority |= other.priority
        self.ordering_key |= other.ordering_key
        self.delay |= other.delay


# --- in a task ----------------------------------------------------------------------------------
class RowsToPuts:
    """Makes columns that hold all a put needs, of batches of rows."""

    def __init__(self, columns: PutColumns) -> None:
        self._columns = columns
        names = ["body", *columns.message]
        if "dedupe_key" in columns.message:
            names.append("fingerprint")
        self.schema = pa.schema([pa.field(name, _TYPES[name]) for name in names])
        self._converters: list[Convert | None] = [
            converter(field.dataType, field.name) for field in columns.payload.fields
        ]
        self.facts: dict[str, Facts] = {}
        self.rows = 0

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns for these rows; BadRow, counted from the first row of all, for a bad one."""
        try:
            bodies = self._bodies(batch)
            made = {"body": bodies}
            for name, place in self._columns.message.items():
                made[name] = _BESIDE_VALUE[name](batch.column(place))
        except BadRow as bad:
            raise BadRow(self.rows + bad.place, bad.why) from None
        if "fingerprint" in self.schema.names:
            made["fingerprint"] = _fingerprints(made["dedupe_key"], bodies)
        converted = pa.record_batch([made[name] for name in self.schema.names], schema=self.schema)
        self.rows += len(batch)
        self._learn(converted)
        return converted

    def _bodies(self, batch: pa.RecordBatch) -> pa.Array[Any]:
        columns = self._columns
        if columns.value is not None:
            values = batch.column(columns.value)
            if values.null_count:
                raise BadRow(_first(values.is_null()), "value is null; JSON's own is the text null")
            if columns.is_text:
                return check_texts(values).cast(pa.large_binary())
            [convert] = self._converters
            listed = values.to_pylist()
            payloads: Iterable[Any] = listed if convert is None else map(convert, listed)
        else:
            payloads = self._objects(batch)
        return pa.array(_encoded(payloads), pa.large_binary())

    def _objects(self, batch: pa.RecordBatch) -> Iterable[dict[str, Any]]:
        listed = []
        for place, convert in zip(self._columns.places, self._converters, strict=True):
            column = batch.column(place).to_pylist()
            if convert is not None:
                column = [None if value is None else convert(value) for value in column]
            listed.append(column)
        names = self._columns.payload.fieldNames()
        return (dict(zip(names, row, strict=True)) for row in zip(*listed, strict=True))

    def _learn(self, converted: pa.RecordBatch) -> None:
        queue = self._columns.queue
        if queue is not None:
            self._add(queue, converted)
            return
        queues = converted.column("queue")
        for name in pc.unique(queues).to_pylist():
            self._add(name, converted.filter(pc.equal(queues, name)))

    def _add(self, queue: str, rows: pa.RecordBatch) -> None:
        found = Facts(len(rows), sum(_digests(rows)))
        if "priority" in rows.schema.names:
            found.priority = (pc.max(rows.column("priority")).as_py() or 0) > 0
        if "delay" in rows.schema.names:
            found.delay = (pc.max(rows.column("delay")).as_py() or 0.0) > 0
        if "ordering_key" in rows.schema.names:
            found.ordering_key = rows.column("ordering_key").null_count < len(rows)
        self.facts.setdefault(queue, Facts()).add(found)


def _digests(rows: pa.RecordBatch) -> Iterable[int]:
    """Of each row, all that it says."""
    digests: Iterable[int] = repeat(0)
    for name in sorted(rows.schema.names):
        if name != "fingerprint":  # of the body as well
            column = rows.column(name)
            if pa.types.is_primitive(column.type):
                column = column.cast(pa.string())
            texts = column.cast(pa.large_binary()).fill_null(_NULL).to_pylist()
            digests = map(zlib.crc32, texts, digests)
    return digests


def _encoded(payloads: Iterable[Any]) -> list[bytes]:
    bodies = []
    for place, payload in enumerate(payloads):
        try:
            bodies.append(JSON_CODEC.encode(payload))
        except InvalidMessage as error:
            raise BadRow(place, error) from None
    return bodies


def _queues(column: pa.Array[Any]) -> pa.Array[Any]:
    if column.null_count:
        raise BadRow(_first(column.is_null()), "its queue is null")
    for name in pc.unique(column).to_pylist():
        try:
            check_queue_name(name)
        except InvalidArgument as error:
            raise BadRow(_first(pc.equal(column, name)), error) from None
    return column.cast(pa.string())


def _headers(column: pa.Array[Any]) -> pa.Array[Any]:
    encoded: list[bytes | None] = []
    for place, pairs in enumerate(column.to_pylist()):
        try:
            encoded.append(encode_headers(dict(pairs)) if pairs else None)
        except InvalidMessage as error:
            raise BadRow(place, error) from None
    return pa.array(encoded, pa.binary())


def _priorities(column: pa.Array[Any]) -> pa.Array[Any]:
    numbers = column.cast(pa.int64()).fill_null(0)
    _refuse(pc.less(numbers, 0), "priority cannot be negative")
    _refuse(
        pc.greater(numbers, HIGHEST_PRIORITY), f"priority cannot be greater than {HIGHEST_PRIORITY}"
    )
    return numbers.cast(pa.int32())


def _delays(column: pa.Array[Any]) -> pa.Array[Any]:
    return _seconds("delay", column).fill_null(0.0)


def _ttls(column: pa.Array[Any]) -> pa.Array[Any]:
    seconds = _seconds("ttl", column)
    _refuse(pc.equal(seconds, 0.0), "ttl must be greater than zero")
    return seconds


def _seconds(what: str, column: pa.Array[Any]) -> pa.Array[Any]:
    seconds = column.cast(pa.float64())
    _refuse(pc.invert(pc.is_finite(seconds)), f"{what} must be a finite number")
    _refuse(pc.less(seconds, 0.0), f"{what} cannot be negative")
    _refuse(pc.greater(seconds, LONGEST_DELAY), f"{what} cannot be longer than ten years")
    return seconds


def _keys(what: str) -> Callable[[pa.Array[Any]], pa.Array[Any]]:
    def check(column: pa.Array[Any]) -> pa.Array[Any]:
        lengths = pc.utf8_length(column)
        _refuse(pc.equal(lengths, 0), f"{what} cannot be empty")
        _refuse(pc.greater(lengths, LONGEST_KEY), f"{what} is longer than {LONGEST_KEY} characters")
        return column.cast(pa.string())

    return check


_BESIDE_VALUE: dict[str, Callable[[pa.Array[Any]], pa.Array[Any]]] = {
    "queue": _queues,
    "headers": _headers,
    "priority": _priorities,
    "delay": _delays,
    "ttl": _ttls,
    "dedupe_key": _keys("dedupe_key"),
    "ordering_key": _keys("ordering_key"),
}


def _fingerprints(keys: pa.Array[Any], bodies: pa.Array[Any]) -> pa.Array[Any]:
    """Of the values that have a dedupe key, as ``put`` would tell them apart."""
    if keys.null_count == len(keys):
        return pa.array([0] * len(keys), pa.int64())
    return pa.array(
        [
            0 if key is None else JSON_CODEC.fingerprint(json.loads(body), body)
            for key, body in zip(keys.to_pylist(), bodies.to_pylist(), strict=True)
        ],
        pa.int64(),
    )


def _refuse(bad: pa.Array[Any], why: str) -> None:
    if pc.any(bad).as_py():
        raise BadRow(_first(bad), why)


def _first(found: pa.Array[Any]) -> int:
    return int(pc.index(found, True).as_py())


# --- on the driver ------------------------------------------------------------------------------
def make_puts(rows: pa.RecordBatch, queue: str | None, dedupe_window: float) -> Sequence[Put]:
    """What the store is told of these rows; ``queue`` is where they go that do not say."""
    names = set(rows.schema.names)
    bodies = rows.column("body").to_pylist()
    if names == {"body"}:
        rest = Put(queue or "", b"")[2:]
        return [_put((queue, body, *rest)) for body in bodies]

    def column(name: str, default: Any) -> Iterable[Any]:
        return rows.column(name).to_pylist() if name in names else repeat(default)

    return list(
        map(
            _put,
            zip(
                column("queue", queue),
                bodies,
                repeat(JSON_CODEC.id),
                column("headers", None),
                column("delay", 0.0),
                column("priority", 0),
                column("ordering_key", None),
                column("ttl", None),
                column("dedupe_key", None),
                repeat(dedupe_window),
                column("fingerprint", 0),
                repeat(False),
                repeat(None),
                repeat(None),
                strict=False,  # what is repeated has no end
            ),
        )
    )
