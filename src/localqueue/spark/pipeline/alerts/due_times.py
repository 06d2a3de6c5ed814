"""When messages that were put off are due: the journal does not say it, the messages do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from localqueue.spark.options import Options
from localqueue.spark.read.scan import open_source, read_task
from localqueue.spark.read.schema import spark_schema

AT_ONCE = 500
"""How many messages one question asks for."""


@dataclass(frozen=True, slots=True)
class WithDueTimes:
    """Fills ``due_at`` of events that begin a delay, in microseconds. It runs on executors.

    Null where the message is elsewhere by now. A later time is found when it was put off again:
    the event that did so is on its way, and counts then.
    """

    options: Options
    """Of the store; its queues are those that the events are of."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(self._filled, batches)

    def _filled(self, events: pa.RecordBatch) -> pa.RecordBatch:
        delayed = events.filter(pc.fill_null(pc.equal(events["to_state"], "delayed"), False))
        if not delayed.num_rows:
            return events
        due = self._look_up(pc.unique(delayed["message_id"]).to_pylist())
        pairs = zip(
            events["queue"].to_pylist(),
            events["message_id"].to_pylist(),
            events["to_state"].to_pylist(),
            strict=True,
        )
        times = [
            due.get((queue, name)) if state == "delayed" else None for queue, name, state in pairs
        ]
        place = events.schema.get_field_index("due_at")
        return events.set_column(place, events.schema.field(place), pa.array(times, pa.int64()))

    def _look_up(self, message_ids: Sequence[str]) -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = {}
        for some in _pieces(message_ids):
            listed = ", ".join(f"'{message_id}'" for message_id in some)
            for row in self._rows(f"id IN ({listed})"):
                found[row["queue"], row["id"]] = row["available_at"]
        return found

    def _rows(self, where: str) -> Iterator[dict[str, Any]]:
        options = replace(
            self.options, content="messages", columns=("id", "queue", "available_at"), where=where
        )
        schema = spark_schema(options)
        assert not isinstance(schema, str)
        with open_source(options, schema) as source:
            tasks = source.plan_messages()
        for task in tasks:
            for batch in read_task(task):
                micros = batch["available_at"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
                yield from batch.set_column(
                    batch.schema.get_field_index("available_at"), "available_at", micros
                ).to_pylist()


def _pieces(message_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(message_ids), AT_ONCE):
        yield message_ids[start : start + AT_ONCE]
