"""From events to what they say of keys: a new value, or that there is none any more."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from localqueue.codec import JSON_CODEC
from localqueue.spark.pipeline.compacted.topic import Compacted
from localqueue.spark.pipeline.replaying.window import ARRIVALS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELETED = "deleted"
"""A column that changes have beside those of the table."""
_TAKEN = ("message_id", "at", "store", "seq")
_MISSING = object()


def changes(events: DataFrame, topic: Compacted) -> DataFrame:
    """What these events say of keys, one row for each key: the last that was said."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    chosen = (f.col("queue") == topic.queue) & f.col("kind").isin(*ARRIVALS)
    rows = events.where(chosen & f.col("value").isNotNull()).select("value", *_TAKEN)
    task = _Changes(topic, _schema(topic))
    return latest(rows.mapInArrow(task, from_arrow_schema(task.schema)))


def latest(rows: DataFrame) -> DataFrame:
    """Of several rows of a key the one that came last; within a store that is by its seq."""
    from pyspark.sql import functions as f

    names = [name for name in rows.columns if name != "key"]
    last = f.max_by(f.struct(*names), f.struct("at", "seq")).alias("last")
    return rows.groupBy("key").agg(last).select("key", *(f"last.{name}" for name in names))


def _schema(topic: Compacted) -> pa.Schema:
    return topic.definition.schema.append(pa.field(DELETED, pa.bool_()))


@dataclass(frozen=True, slots=True)
class _Changes:
    """What an executor runs."""

    topic: Compacted
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            said = [self._said(text) for text in batch["value"].to_pylist()]
            rows = batch.filter(pa.array([each is not None for each in said], pa.bool_()))
            pairs = [each for each in said if each is not None]
            made = {
                "key": pa.array([key for key, _ in pairs], pa.string()),
                "value": pa.array([value for _, value in pairs], pa.string()),
                "slot": pa.array([slot_of(key) for key, _ in pairs], pa.int64()),
                DELETED: pa.array([value is None for _, value in pairs], pa.bool_()),
            }
            arrays = [
                made[each.name] if each.name in made else rows[each.name].cast(each.type)
                for each in self.schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _said(self, text: str) -> tuple[str, str | None] | None:
        """The key, and its value as JSON; None for a message that says nothing of a key."""
        payload = json.loads(text)
        key = _at(payload, self.topic.key)
        value = payload if self.topic.value is None else _at(payload, self.topic.value)
        if key is _MISSING or key is None or value is _MISSING:
            return None
        shown = key if isinstance(key, str) else _json(key)
        if value is None:
            return shown, None
        return shown, text if self.topic.value is None else _json(value)


def slot_of(key: str) -> int:
    return zlib.crc32(key.encode())


def _at(payload: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(payload, dict) or name not in payload:
            return _MISSING
        payload = payload[name]
    return payload


def _json(value: Any) -> str:
    return JSON_CODEC.encode(value).decode()
