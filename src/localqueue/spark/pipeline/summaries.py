"""What tasks sum up of the rows that they read anyway, for tables whose rows are merged.

A summary is small, whatever the rows were: each task hands its own to the driver, which merges them
with what the table has. So gold costs no second reading of events, and no shuffle.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from localqueue.spark.pipeline.places import Place


class Summing(Protocol):
    """The sum of one task, being made."""

    def add(self, events: pa.RecordBatch) -> None: ...

    def result(self) -> pa.Table:
        """The same columns in every task, also when it had no rows."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary that is wanted of a job. It can be pickled."""

    table: str
    begin: Callable[[], Summing]
    rows: Callable[[pa.RecordBatch], pa.RecordBatch]
    """From what the task reads to sound events."""
    floors: Mapping[Place, int] = field(default_factory=dict)
    """Events at or below these positions are in the table already, and are left out."""


def packed(summary: pa.Table) -> str:
    """As text, for a report."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, summary.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as writer:
        writer.write_table(summary)
    return base64.b64encode(sink.getvalue()).decode()


def together(parts: Sequence[str]) -> pa.Table:
    """The packed summaries of all tasks, in one table."""
    tables = [pa.ipc.open_stream(base64.b64decode(part)).read_all() for part in parts]
    return pa.concat_tables(tables)
